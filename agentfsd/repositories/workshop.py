"""A temporary bare repository in which git works on the object files of several branches.

No configuration of a workspace applies.

No setting, hook, filter, attribute or path of a workspace gets in: the settings are our own, there is no work tree, and the
object directories are made of plain files and of descriptors. git never fetches an object that is missing.
"""

import os
import shutil
import stat
import subprocess
import tempfile
import threading
from collections.abc import Callable, Generator, Iterable, Sequence
from concurrent.futures import Future
from typing import NamedTuple, TypeVar

from agentfsd.lower.host_lower import HostLower

_T = TypeVar("_T")

TIMEOUT_S = 300.0  # one start of git; what takes longer is given up
_FANOUT = {b"%02x" % number for number in range(256)} | {b"pack"}
_WAIT_S = 0.001


class GitFailed(Exception):
    """git failed. The text is git's own."""


class Bundle(NamedTuple):
    """Object files for a workshop.

    Attributes:
        contents: The content of small files, by path below the objects directory.
        descriptors: Descriptors of large files, likewise. The bundle owns them.
    """

    contents: dict[bytes, bytes]
    descriptors: dict[bytes, int]

    def close(self) -> None:
        """Close the descriptors."""
        for fd in self.descriptors.values():
            os.close(fd)
        self.descriptors.clear()


class Workshop:
    """A bare repository in a temporary directory; a context manager that removes it. Only one thread at a time may use it."""

    def __init__(self, place: str, form: str, bundle: Bundle, lowers: Sequence[tuple[HostLower, bytes]] = ()) -> None:
        """Create the repository.

        Args:
            place: The directory in which the temporary directory is made.
            form: git's object format.
            bundle: The object files that branches store themselves.
            lowers: The object directories of the lower, to read from.
        """
        self._given = set(bundle.descriptors.values())
        self._held: list[int] = []
        self._cat: subprocess.Popen[bytes] | None = None
        self.form = form
        self.path = _directory(place)
        self.objects = os.path.join(self.path, "objects")
        self._lay_out(bundle)
        alternates = [os.path.join(self.path, "have")]
        try:
            alternates += [self._link_lower(number, *lower) for number, lower in enumerate(lowers)]
        except OSError:
            self.close()
            raise
        self._environment = {
            "PATH": os.environ.get("PATH", os.defpath), "HOME": self.path, "XDG_CONFIG_HOME": self.path, "LC_ALL": "C",
            "GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": os.devnull, "GIT_ATTR_NOSYSTEM": "1", "GIT_TERMINAL_PROMPT": "0",
            "GIT_NO_LAZY_FETCH": "1", "GIT_NO_REPLACE_OBJECTS": "1", "GIT_OPTIONAL_LOCKS": "0", "GIT_DIR": self.path,
            "GIT_OBJECT_DIRECTORY": self.objects, "GIT_ALTERNATE_OBJECT_DIRECTORIES": ":".join(alternates),
        }  # fmt: skip

    def __enter__(self) -> "Workshop":
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        """End git and remove the repository."""
        if self._cat is not None:
            assert self._cat.stdin is not None and self._cat.stdout is not None
            self._cat.kill()
            self._cat.stdin.close()
            self._cat.stdout.close()
            self._cat.wait()
            self._cat = None
        for fd in self._held:
            os.close(fd)
        self._held = []
        shutil.rmtree(self.path, ignore_errors=True)

    def _lay_out(self, bundle: Bundle) -> None:
        for directory in ("objects", "refs", "have/pack"):
            os.makedirs(os.path.join(self.path, directory))
        with open(os.path.join(self.path, "HEAD"), "w") as file:
            file.write("ref: refs/heads/workshop\n")
        version = 1 if self.form != "sha1" else 0
        with open(os.path.join(self.path, "config"), "w") as file:
            file.write(f"[core]\nrepositoryformatversion = {version}\nbare = true\nhooksPath = /dev/null\nfsmonitor = false\n")
            file.write("logAllRefUpdates = false\n[gc]\nauto = 0\n")
            if self.form != "sha1":
                file.write(f"[extensions]\nobjectFormat = {self.form}\n")
        made = {b"pack"}
        have = os.fsencode(os.path.join(self.path, "have"))
        for path, data in bundle.contents.items():
            self._make_directory(have, path, made)
            with open(os.path.join(have, path), "wb") as file:
                file.write(data)
        for path, fd in bundle.descriptors.items():
            self._make_directory(have, path, made)
            os.symlink(b"/proc/self/fd/%d" % fd, os.path.join(have, path))

    @staticmethod
    def _make_directory(have: bytes, path: bytes, made: set[bytes]) -> None:
        directory = os.path.dirname(path)
        if directory not in made:
            os.makedirs(os.path.join(have, directory), exist_ok=True)
            made.add(directory)

    def _link_lower(self, number: int, lower: HostLower, path: bytes) -> str:
        """Make an objects directory that links to the lower's directories by descriptor. No symlink in the lower is followed."""
        place = os.path.join(self.path, f"lower-{number}")
        os.mkdir(place)
        directory = os.open(b"/proc/self/fd/%d" % lower.renew(path).fd, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self._held.append(directory)
        for entry in lower.readdir(path):
            if entry.name in _FANOUT and entry.type == stat.S_IFDIR:
                os.symlink(b"/proc/self/fd/%d/%s" % (directory, entry.name), os.path.join(os.fsencode(place), entry.name))
        return place

    def cut(self, boundaries: Iterable[bytes]) -> None:
        """Set the boundaries of shallow clones."""
        lines = {line for shallow in boundaries for line in shallow.splitlines(keepends=True)}
        if lines:
            with open(os.path.join(self.path, "shallow"), "wb") as file:
                file.write(b"".join(sorted(lines)))

    # -- git

    def git(self, *arguments: str | bytes, data: bytes = b"", good: tuple[int, ...] = (0,), **more: str) -> bytes:
        """Run git and return its output.

        Args:
            args: The arguments of git.
            data: Its standard input.
            good: The exit codes that mean success.
            more: Additional environment variables.

        Raises:
            GitFailed: git ended with another exit code, or not within TIMEOUT_S.
        """
        return self.ask(*arguments, data=data, good=good, **more)[0]

    def ask(self, *arguments: str | bytes, data: bytes = b"", good: tuple[int, ...] = (0,), **more: str) -> tuple[bytes, int]:
        """Run git as git() does, and return its output and exit code."""
        try:
            done = subprocess.run(
                ["git", *arguments], input=data, capture_output=True, env=self._environment | more, cwd=self.path,
                pass_fds=[*self._given, *self._held], timeout=TIMEOUT_S, check=False,
            )  # fmt: skip
        except FileNotFoundError:
            raise GitFailed("git is not installed") from None
        except subprocess.TimeoutExpired:
            raise GitFailed(f"git did not end within {TIMEOUT_S:.0f} s") from None
        if done.returncode not in good:
            raise GitFailed(done.stderr.decode("utf-8", "backslashreplace").strip() or f"git ended with {done.returncode}")
        return done.stdout, done.returncode

    def read(self, name: bytes) -> tuple[bytes, bytes]:
        """Return (type, content) of an object. Raises GitFailed if the object is missing."""
        if self._cat is None:
            self._cat = subprocess.Popen(
                ["git", "cat-file", "--batch"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                env=self._environment, cwd=self.path, pass_fds=[*self._given, *self._held],
            )  # fmt: skip
        assert self._cat.stdin is not None and self._cat.stdout is not None
        try:
            self._cat.stdin.write(name + b"\n")
            self._cat.stdin.flush()
        except BrokenPipeError:
            raise GitFailed("git cat-file ended early") from None
        fields = self._cat.stdout.readline().split()
        if len(fields) != 3:
            raise GitFailed(f"object {name.decode('ascii', 'backslashreplace')} is missing")
        data = self._cat.stdout.read(int(fields[2]))
        self._cat.stdout.read(1)
        return fields[1], data

    def made(self) -> dict[bytes, bytes]:
        """Return the object files that git created here, by path below the objects directory."""
        made: dict[bytes, bytes] = {}
        for directory, _, names in os.walk(os.fsencode(self.objects)):
            for name in names:
                path = os.path.join(directory, name)
                with open(path, "rb") as file:
                    made[os.path.relpath(path, os.fsencode(self.objects))] = file.read()
        return made


def _directory(place: str) -> str:
    """Make a new directory in *place*, and remove what a killed daemon left there. Only one daemon uses *place*."""
    own = f"git-{os.getpid()}-"
    for name in os.listdir(place):
        if name.startswith("git-") and not name.startswith(own):
            shutil.rmtree(os.path.join(place, name), ignore_errors=True)
    return tempfile.mkdtemp(prefix=own, dir=place)


def aside(work: Callable[[], _T]) -> Generator[tuple[int, int, str], None, _T]:
    """Run *work* in a thread. Yields progress, as core/tree_diff.py does, so that other requests are answered meanwhile."""
    future: Future[_T] = Future()

    def run() -> None:
        try:
            future.set_result(work())
        except BaseException as exc:  # noqa: BLE001 - raised again where the result is waited for
            future.set_exception(exc)

    threading.Thread(target=run, name="git", daemon=True).start()
    while True:
        try:
            return future.result(timeout=_WAIT_S)
        except TimeoutError:
            if future.done():
                raise
        yield 0, 0, "git"
