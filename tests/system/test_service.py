"""What a service manager sees of a daemon: the test plays its part, over NOTIFY_SOCKET and with signals."""

import logging
import os
import pty
import re
import select
import signal
import socket
import struct
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from agentfs_client import ControlClient
from agentfs_host import mount_table
from agentfsd.linux import mounts
from agentfsd.process import journald
from tests.mounted import AGENTFSD, Mounted, agentfsd, needs_fuse, needs_root

_WATCHDOG_S = 0.4


class Service(Mounted):
    """A mount whose daemon is a service of ours."""

    def __init__(self, base: Path, *options: str) -> None:
        super().__init__(base, None, *options)
        self.settings = base / "settings"
        address = str(base / "notify")
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(address)
        self._asked: list[ControlClient] = []
        self.environment = {**os.environ, "NOTIFY_SOCKET": address}
        self.log = base / "log"
        self.log.touch()

    def begin(self, **environment: str) -> subprocess.Popen[str]:
        command = [
            *AGENTFSD,
            "mount",
            "--foreground",
            "--state",
            str(self.state),
            "--settings",
            str(self.settings),
            *self.options,
        ]
        with open(self.log, "a") as log:
            self.daemon = subprocess.Popen(
                [*command, str(self.lower), str(self.path)], env=self.environment | environment, stderr=log, text=True,
                start_new_session=True,
            )  # fmt: skip
        self.started.append(self.daemon)
        self.hear("READY=1")
        return self.daemon

    def hear(self, word: str, within_s: float = 15.0) -> str:
        """The next message with that line; what came before it is forgotten."""
        deadline = time.monotonic() + within_s
        while (left_s := deadline - time.monotonic()) > 0:
            self._socket.settimeout(left_s)
            try:
                said = self._socket.recv(1 << 16).decode()
            except TimeoutError:
                break
            if any(line == word or line.startswith(f"{word}=") for line in said.split("\n")):
                return said
        raise AssertionError(f"{word} was not said within {within_s} s; the log: {self.log.read_text()}")

    def hears(self, word: str, within_s: float) -> bool:
        try:
            self.hear(word, within_s)
        except AssertionError:
            return False
        return True

    def ask(self) -> ControlClient:
        """A conversation over the socket, which is there even when the mount does not answer."""
        self._asked.append(ControlClient.connect(self.record().socket, timeout_s=10))
        return self._asked[-1]

    def forget(self) -> None:
        self._socket.setblocking(False)
        try:
            while True:
                self._socket.recv(4096)
        except BlockingIOError:
            pass

    def end(self) -> None:
        for client in self._asked:
            client.close()
        super().end()
        self._socket.close()


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    needs_fuse()
    made = Service(tmp_path)
    yield made
    made.end()


def is_fed(service: Service) -> bool:
    """Whether it is now: what was sent before does not count."""
    service.forget()
    return service.hears("WATCHDOG=1", within_s=15)


def starves(service: Service) -> bool:
    """Whether it is not fed in three times the time after which the service manager would end it."""
    service.forget()
    return not service.hears("WATCHDOG=1", within_s=3 * _WATCHDOG_S)


def begin_watched(service: Service) -> subprocess.Popen[str]:
    return service.begin(WATCHDOG_USEC=str(int(_WATCHDOG_S * 1e6)))


def test_ready_comes_when_the_mount_answers_and_says_what_is_mounted(service: Service) -> None:
    (service.lower / "file").write_text("lower\n")
    service.begin()
    assert (service.path / "file").read_text() == "lower\n"
    service.daemon.send_signal(signal.SIGTERM)
    said = service.hear("STOPPING")
    assert "STATUS=unmounting" in said
    assert service.daemon.wait(20) == 0
    assert mount_table.mount_at(str(service.path)) is None


def test_watchdog_is_fed_while_requests_are_answered_and_not_while_the_daemon_stands_still(service: Service) -> None:
    begin_watched(service)
    assert is_fed(service)
    service.daemon.send_signal(signal.SIGSTOP)
    time.sleep(0.05)
    assert starves(service)
    service.daemon.send_signal(signal.SIGCONT)
    assert is_fed(service)


def test_watchdog_is_not_fed_while_the_mount_does_not_answer(service: Service) -> None:
    needs_root()
    begin_watched(service)
    in_front = mounts.mount_fuse(str(service.path), frozenset(), False)  # answers nobody
    try:
        time.sleep(_WATCHDOG_S)
        assert starves(service)
        assert service.ask().list_branches()  # it is alive all the same
    finally:
        os.close(in_front)
        mounts.unmount(str(service.path), lazy=True)
    assert is_fed(service)


def test_watchdog_is_not_fed_while_the_socket_does_not_answer(service: Service) -> None:
    begin_watched(service)
    socket_path = Path(service.record().socket)
    socket_path.rename(service.state / "elsewhere")
    time.sleep(_WATCHDOG_S)
    assert starves(service)
    (service.state / "elsewhere").rename(socket_path)
    assert is_fed(service)


def test_abort_leaves_in_the_log_where_the_daemon_was(service: Service) -> None:
    service.begin(WATCHDOG_USEC="100000", WATCHDOG_PID="1")  # which is another process: nobody waits for us
    assert not service.hears("WATCHDOG=1", within_s=0.3)
    service.daemon.send_signal(signal.SIGABRT)
    service.daemon.wait(20)
    assert re.search(r'File ".*/agentfsd/daemon/\w+.py", line \d+ in ', service.log.read_text())


def test_reload_puts_the_settings_in_force(service: Service) -> None:
    service.settings.write_text("retention.max_count = 7\n")
    service.begin()
    assert service.ask().policy()["retention.max_count"] == "7"
    service.settings.write_text(
        "# ours\nretention.max_count = 3  # each branch\n\ninterpose.min_read_bytes = 2M\nlog.level=debug\n"
    )
    before_us = time.monotonic_ns() // 1000
    service.daemon.send_signal(signal.SIGHUP)
    said = dict(line.split("=", 1) for line in service.hear("RELOADING=1").split("\n"))
    assert before_us <= int(said["MONOTONIC_USEC"]) <= time.monotonic_ns() // 1000
    service.hear("READY=1")
    assert service.ask().policy()["retention.max_count"] == "3"
    assert service.ask().interpose().settings["min_read_bytes"] == str(2 << 20)
    assert service.daemon.poll() is None


NONSENSE = {
    "retention.max_count = many": "not a number of snapshots",
    f"retention.max_count = {'9' * 5000}": "999",
    "retention.most = 3": "no setting named",
    "interpose.enabled = perhaps": "neither on nor off",
    "log.level = loud": "not a log level",
    "retention.max_count": "not a setting",
    "x" * 5000: "xxx",
}


def test_reload_of_settings_that_make_no_sense_changes_nothing(service: Service) -> None:
    service.begin()
    for line, words in NONSENSE.items():
        service.settings.write_text(f"retention.max_age = 30d\n{line}\n")
        service.daemon.send_signal(signal.SIGHUP)
        service.hear("RELOADING=1")
        said = service.hear("READY=1")
        assert f"{service.settings}:2: " in said and words in said
        assert len(said) <= 4096  # more is nothing to systemd
    assert service.ask().policy()["retention.max_age"] == "0"


def test_settings_that_make_no_sense_are_refused_at_the_start(service: Service) -> None:
    service.settings.write_text("copyup.umask = 9\n")
    arguments = ("--state", str(service.state), "--settings", str(service.settings))
    done = agentfsd("mount", str(service.lower), str(service.path), *arguments, check=False)
    assert done.returncode == 1
    assert f"{service.settings}:1: " in done.stderr
    assert mount_table.mount_at(str(service.path)) is None


def test_settings_that_cannot_be_read_to_their_end_change_nothing(service: Service) -> None:
    service.begin()
    for number, (words, make) in enumerate(UNREADABLE.items()):
        service.settings.unlink(missing_ok=True)
        make(service.settings)
        service.daemon.send_signal(signal.SIGHUP)
        service.hear("RELOADING=1", within_s=5)
        assert words in service.hear("READY=1", within_s=5), number
    assert service.ask().policy()["retention.max_count"] == "0"


UNREADABLE: dict[str, Callable[[Path], object]] = {
    "it is not an ordinary file": os.mkfifo,
    "larger than 1 MiB": lambda path: path.write_text("retention.max_count = 5\n" + "#" * (1 << 20)),
    "it is not UTF-8": lambda path: path.write_bytes(b"retention.max_count = 5\n\xff"),
    "Is a directory": Path.mkdir,
}


def test_settings_on_a_share_that_hangs_make_nobody_wait(service: Service, tmp_path: Path) -> None:
    needs_root()
    service.begin()
    share = tmp_path / "share"
    share.mkdir()
    hanging = mounts.mount_fuse(str(share), frozenset(), False)  # answers nobody
    try:
        service.settings.symlink_to(share / "settings")
        service.daemon.send_signal(signal.SIGHUP)
        service.hear("RELOADING=1")
        assert service.ask().policy()
        assert "was not read within" in service.hear("READY=1")
    finally:
        os.close(hanging)
        mounts.unmount(str(share), lazy=True)


def test_settings_inside_the_mount_are_refused(service: Service) -> None:
    (service.path / "settings").write_text("")
    arguments = ("--state", str(service.state), "--settings", str(service.path / "settings"))
    done = agentfsd("mount", str(service.path), str(service.path), *arguments, check=False)
    assert done.returncode == 1 and "lie inside the mount point" in done.stderr and "/etc/agentfsd" in done.stderr


def test_manager_that_takes_nothing_makes_nobody_wait_for_long(service: Service) -> None:
    service.begin()
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as others:
        others.setblocking(False)
        with pytest.raises(BlockingIOError):
            while True:
                others.sendto(b"X=1", service.environment["NOTIFY_SOCKET"])
    service.daemon.send_signal(signal.SIGHUP)
    time.sleep(0.05)
    assert service.ask().policy()


def test_hangup_of_its_terminal_ends_a_daemon_in_the_foreground(tmp_path: Path) -> None:
    needs_fuse()
    mounted = Mounted(tmp_path)
    child, terminal = pty.fork()
    if child == 0:
        arguments = ["mount", "--foreground", str(mounted.lower), str(mounted.path), "--state", str(mounted.state)]
        os.execv(AGENTFSD[0], [*AGENTFSD, *arguments])
    try:
        wait_for(lambda: mount_table.mount_at(str(mounted.path)) is not None)
        wait_for(lambda: mounted.state.joinpath("daemon.json").exists())
        while select.select([terminal], [], [], 1)[0]:  # what it had to say has been said
            os.read(terminal, 1 << 16)
        os.close(terminal)
        assert ended(child) == 0
        assert mount_table.mount_at(str(mounted.path)) is None
    finally:
        mounted.end()


def test_stop_while_somebody_is_inside_unmounts_lazily(service: Service) -> None:
    service.begin()
    inside = subprocess.Popen(["sleep", "60"], cwd=service.path)
    try:
        service.daemon.send_signal(signal.SIGTERM)
        service.hear("STOPPING=1")
        assert service.daemon.wait(20) == 0
        assert mount_table.mount_at(str(service.path)) is None
    finally:
        inside.kill()
        inside.wait()


def test_stop_as_soon_as_it_is_mounted_leaves_no_dead_mount(service: Service) -> None:
    command = [*AGENTFSD, "mount", "--foreground", str(service.lower), str(service.path), "--state", str(service.state)]
    for delay_s in (0.0, 0.005, 0.02):
        with subprocess.Popen(command, stderr=subprocess.DEVNULL) as daemon:
            while mount_table.mount_at(str(service.path)) is None:
                assert daemon.poll() is None
            time.sleep(delay_s)
            daemon.terminate()
            assert daemon.wait(20) == 0
        assert mount_table.mount_at(str(service.path)) is None


def test_restart_after_a_kill_needs_no_repair_of_the_dead_mount(service: Service) -> None:
    service.begin()
    (service.path / "kept").write_text("kept\n")
    service.ask().create_branch("fix-1")
    inside = subprocess.Popen(["sleep", "60"], cwd=service.path)
    try:
        service.kill()
        service.daemon.wait()
        service.forget()  # with the descriptors in them: a manager without a store of descriptors closes those
        with pytest.raises(OSError, match="not connected"):
            os.listdir(service.path)
        service.begin()
        assert (service.path / "kept").read_text() == "kept\n"
        assert {branch.name for branch in service.ask().list_branches()} == {"main", "fix-1"}
    finally:
        inside.kill()
        inside.wait()


def test_aborted_connection_is_a_failure(service: Service) -> None:
    needs_root()
    service.begin()
    connection = os.minor(os.stat(service.path).st_dev)
    abort = Path(f"/sys/fs/fuse/connections/{connection}/abort")
    if not abort.exists():
        pytest.skip("no fusectl file system is mounted on /sys/fs/fuse/connections")
    abort.write_text("1")
    assert service.daemon.wait(20) == 1
    assert "aborted" in service.log.read_text()


def test_daemon_in_the_background_says_nothing_to_another_ones_manager(service: Service) -> None:
    arguments = ("mount", str(service.lower), str(service.path), "--state", str(service.state))
    agentfsd(*arguments, env=service.environment)
    assert not service.hears("READY=1", within_s=0.2)


# -- the journal


def received(stream: socket.socket) -> dict[str, str]:
    """One record, by fields."""
    message, rights, _, _ = socket.recv_fds(stream, 1 << 20, 1)
    if rights:
        with open(rights[0], "rb") as file:
            file.seek(0)
            message = file.read()
    found: dict[str, str] = {}
    while message:
        head, _, rest = message.partition(b"\n")
        name, equals, value = head.partition(b"=")
        if equals:
            message = rest
        else:
            (size,) = struct.unpack_from("<Q", rest)
            value, message = rest[8 : 8 + size], rest[8 + size + 1 :]
        found[name.decode()] = value.decode()
    return found


def test_journal_has_level_and_fields_of_each_record(tmp_path: Path) -> None:
    address = str(tmp_path / "journal")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as stream:
        stream.bind(address)
        stream.settimeout(10)
        handler = journald.handler({"AGENTFS_MOUNT": "/srv/work"}, address)
        log = logging.Logger("agentfsd.test")
        log.addHandler(handler)
        try:
            log.warning("two\nlines", extra={"branch": "fix-1"})
            first = received(stream)
            log.error("%s", "x" * (1 << 20))
            second = received(stream)
        finally:
            handler.close()
    assert (first["MESSAGE"], first["PRIORITY"]) == ("two\nlines", "4")
    assert (first["AGENTFS_MOUNT"], first["AGENTFS_BRANCH"], first["LOGGER"]) == ("/srv/work", "fix-1", "agentfsd.test")
    assert (len(second["MESSAGE"]), second["PRIORITY"]) == (1 << 20, "3")
    assert "AGENTFS_BRANCH" not in second


def test_standard_error_that_goes_to_the_journal_has_levels(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    handler = journald.handler({}, str(tmp_path / "nobody"))
    log = logging.Logger("agentfsd.test")
    log.addHandler(handler)
    log.info("one\ntwo")
    log.critical("three")
    assert capfd.readouterr().err == "<6>agentfsd.test: one\n<6>two\n<2>agentfsd.test: three\n"


def test_stream_is_the_journals_only_if_that_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with open(tmp_path / "stream", "w") as stream:
        found = os.fstat(stream.fileno())
        assert not journald.listens(stream.fileno())
        monkeypatch.setenv("JOURNAL_STREAM", f"{found.st_dev}:{found.st_ino}")
        assert journald.listens(stream.fileno())
        assert not journald.listens(0)


def ended(child: int) -> int:
    """The exit code, when it has ended by itself."""
    found: list[tuple[int, int]] = []
    wait_for(lambda: found.append(os.waitpid(child, os.WNOHANG)) or found[-1][0] == child)
    return os.waitstatus_to_exitcode(found[-1][1])


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)
