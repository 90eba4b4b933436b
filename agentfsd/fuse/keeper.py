"""Keeps the descriptors of a daemon, and starts the next daemon when that one dies. Part of the process of fuse/mount_holder.py.

It knows no file, and answers no request of the kernel, but refuses all when it gives up. It must not use a path inside the mount:
while no daemon serves, it would wait for the daemon that it is to start.
"""

import contextlib
import os
import signal
import socket
import time
from typing import NamedTuple

from agentfsd.fuse.last_answers import refuse_all
from agentfsd.linux import process_syscalls
from agentfsd.process import daemon_process
from agentfsd.process.kept_descriptors import hand_over, receive

CONFIG = "config"  # the kept descriptor of the daemon's config
CONNECTION = ".connection"  # the end of the name of each descriptor of /dev/fuse

IGNORED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGCHLD)  # here, not in the daemon

TICK_S = 1.0
_SILENT_S = 60.0  # without a report a daemon counts as hanging, as the units' WatchdogSec says
_STARTING_S = 300.0  # a daemon that does not serve by then, too
_MOST_DEATHS, _DEATHS_S = 5, 60.0
_KILLED_S = 10.0


def silence_limit_s() -> float:
    """Return how long a daemon may be silent before it counts as hanging. It reports several times in that time."""
    return float(os.environ.get("AGENTFS_HANGS_AFTER_S") or _SILENT_S)


class KeeperPlace(NamedTuple):
    """Where the keeper writes to.

    Attributes:
        log: The daemon's log.
        given_up: A file with the reason, if no daemon is started any more.
        mountpoint: What the daemon serves.
    """

    log: str
    given_up: str
    mountpoint: str


class Keeper:
    """The descriptors of one daemon, and the socket to it.

    Args:
        daemon: The socket.
        place: Where the daemon's log is.
    """

    def __init__(self, daemon: socket.socket, place: KeeperPlace) -> None:
        self.connection, self._place = daemon, place
        self._kept: dict[str, int] = {}
        self._process = -1  # a pidfd of the daemon
        self._silent_s: float | None = None  # since its last report; None: it does not serve yet
        self._starting_s: float | None = None  # since it was started; None: it serves
        self._killed_s: float | None = None  # since it was killed for that it hangs
        self._is_owed = False  # a daemon, which could not be started yet
        self._deaths: list[float] = []
        self._limit_s = silence_limit_s()
        self._most_deaths = int(os.environ.get("AGENTFS_RESTARTS_PER_MINUTE") or _MOST_DEATHS)

    def connections(self) -> list[socket.socket]:
        """Return the sockets on which answer() has a message to read; none while there is no daemon."""
        return [] if self._is_owed else [self.connection]

    def descriptors(self) -> list[int]:
        """Return every descriptor that a child must not keep."""
        return [
            *(each.fileno() for each in self.connections()),
            *self._kept.values(),
            *([self._process] if self._process >= 0 else []),
        ]

    def answer(self) -> bool:
        """Do what the next message says; start the next daemon if this one has died. Return False when all is over."""
        try:
            message, descriptors = receive(self.connection)
        except OSError:
            message, descriptors = None, []
        if message is None:
            return self._died()
        action, name = str(message["do"]), str(message.get("name", ""))
        if action == "keep" and descriptors:
            self._drop(name)
            self._kept[name] = descriptors[0]
        elif action == "keep":  # it did not arrive: this process has as many open as it may have
            self._drop(name)
            self._say(f"the next daemon will not get {name}: too many files are open")
        elif action == "drop":
            self._drop(name)
        elif action == "serving":
            self._serves(message["pid"])
        elif action == "succeeded":
            self._starting_s, self._silent_s, self._killed_s = 0.0, None, None
            self._watch(int(message["pid"]))
        elif action == "alive":
            self._silent_s, self._killed_s = 0.0, None
        return action != "end"

    def tick(self, passed_s: float) -> bool:
        """Count time, and kill a daemon that hangs. Return False when it does not even end: then nobody is to wait for it.

        Args:
            passed_s: The time since the last tick, without that in which this process was stopped itself.
        """
        if self._killed_s is not None:
            self._killed_s += passed_s
            if self._killed_s >= _KILLED_S:
                self._give_up("the daemon hangs, and does not end although it was killed")
            return self._killed_s < _KILLED_S
        if self._is_owed:
            self._try_to_start()
        if self._starting_s is not None:
            self._starting_s += passed_s
        if self._silent_s is not None:
            self._silent_s += passed_s
        if (self._starting_s or 0.0) > _STARTING_S:
            if self._kill():
                time.sleep(TICK_S)  # so that nobody else answers meanwhile
            self._give_up(f"no daemon serves within {_STARTING_S:.0f} s, and none is started any more")
            return False
        if (self._silent_s or 0.0) > self._limit_s:
            self._say("the daemon hangs: it is killed, and started again")
            self._silent_s = None
            self._killed_s = 0.0 if self._kill() else None
        return True

    def _kill(self) -> bool:
        """Kill the daemon; return False if it has ended already, and another one has taken over perhaps."""
        if self._process < 0:
            return False
        try:
            signal.pidfd_send_signal(self._process, signal.SIGKILL)
        except ProcessLookupError:
            return False
        return True

    def _serves(self, pid: object) -> None:
        self._starting_s, self._silent_s, self._killed_s = None, 0.0, None
        self._watch(int(str(pid)))

    def _watch(self, pid: int) -> None:
        if self._process >= 0:
            os.close(self._process)
        try:
            self._process = process_syscalls.pidfd_open(pid, thread=False)
        except OSError:
            self._process = -1

    def _drop(self, name: str) -> None:
        fd = self._kept.pop(name, None)
        if fd is not None:
            os.close(fd)

    # -- the next daemon

    def _died(self) -> bool:
        """Start the next daemon; return False if there is to be none."""
        self.connection.close()
        self._killed_s = None
        now = time.monotonic()
        self._deaths = [death for death in self._deaths if now - death < _DEATHS_S] + [now]
        if CONFIG not in self._kept:
            return False
        if len(self._deaths) > self._most_deaths:
            self._give_up(f"the daemon has died {len(self._deaths)} times in a minute and is not started again")
            return False
        self._say("the daemon has died: it is started again, and the mount waits for it")
        self._try_to_start()
        return True

    def _try_to_start(self) -> None:
        try:
            self._start()
        except OSError as exc:  # no memory, for example
            if not self._is_owed:
                self._say(f"the daemon cannot be started, which is tried again and again: {exc.strerror}")
            self._is_owed, self._starting_s, self._silent_s = True, self._starting_s or 0.0, None
        else:
            self._is_owed = False

    def _give_up(self, sentence: str) -> None:
        self._say(f"{sentence}: {self._place.mountpoint} answers ENOTCONN until `agentfsd mount`")
        with contextlib.suppress(OSError), open(self._place.given_up, "w", encoding="utf-8") as file:
            file.write(sentence)
        refuse_all(fd for name, fd in self._kept.items() if name.endswith(CONNECTION))

    def _start(self) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            os.lseek(self._kept[CONFIG], 0, os.SEEK_SET)
            config, log = os.dup(self._kept[CONFIG]), daemon_process.open_log(self._place.log)
            command = daemon_process.taking_over(config, theirs.fileno(), os.getpid())
            try:
                self._watch(daemon_process.spawn(command, os.environ, log, (config, theirs.fileno()), IGNORED))
            finally:
                os.close(config)
                os.close(log)
        self.connection = ours
        self._starting_s, self._silent_s = self._starting_s or 0.0, None  # all tries count together
        with contextlib.suppress(OSError):  # it has died already, as the next answer() finds out
            hand_over(ours, self._kept)

    def _say(self, sentence: str) -> None:
        now = time.time()
        stamp = f"{time.strftime('%Y-%m-%d %H:%M:%S', time.localtime(now))},{int(now * 1000) % 1000:03}"
        with contextlib.suppress(OSError), open(self._place.log, "a", encoding="utf-8") as log:
            log.write(f"{stamp} WARNING agentfsd.keeper: {sentence}\n")
