"""A temporary bare repository in which git works on the object files of several branches.

No configuration of a workspace applies.

No setting, hook, filter or path of a workspace gets in: the settings are our own, and the object directories are made of plain
files and of descriptors. The work tree has nothing but files of attributes, and no command that these name is defined. git never
fetches an object that is missing.
"""

import os
import shutil
import stat
import subprocess
import tempfile
import threading
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from typing import TypeVar

from agentfsd.lower.host_lower import HostLower
from agentfsd.repositories.packing import Pack, inflate, is_loose, pack, path_of
from agentfsd.repositories.workshop_inputs import AttributeFiles, Bundle, IgnoreFiles

_T = TypeVar("_T")

TIMEOUT_S = 300.0  # one start of git; what takes longer is given up
_FANOUT = {b"%02x" % number for number in range(256)} | {b"pack"}
FEW = 100  # loose objects; of more than that a pack is made: so does `git fetch`


class GitFailed(Exception):
    """git failed. The text is git's own."""


class Workshop:
    """A bare repository in a temporary directory; a context manager that removes it. Only one thread at a time may use it.

    It can serve several merges, one after the other; begin() starts each. What was collected for an earlier merge, or made in it,
    is visible in a later one: git does not write what it sees. So call forget_merge() after a merge whose result is not used.
    """

    def __init__(
        self, place: str, form: str, bundle: Bundle | None = None, lowers: Sequence[tuple[HostLower, bytes]] = ()
    ) -> None:
        """Create the repository.

        Args:
            place: The directory in which the temporary directory is made.
            form: git's object format.
            bundle: The object files for the first merge, which is then begun; None: call begin() first.
            lowers: The object directories of the lower, to read from.
        """
        self._held: list[int] = []
        self._cat: subprocess.Popen[bytes] | None = None
        self._state, self._busy, self._closing = threading.Lock(), False, False
        self._lowers: dict[bytes, str] = {}
        self._raw: dict[bytes, bytes] = {}
        self._visible: set[str] = set()
        self._latest = ""  # the directory of objects that were collected for the latest merge
        self.known: dict[bytes, str] = {}  # where an object file is, by its path below an objects directory
        self.pack: Pack | None = None
        self.has_attributes = False
        self.drivers: frozenset[bytes] = frozenset()  # names of merge drivers that the repository defines; never run
        self.form = form
        self.path = _directory(place)
        self.objects = ""
        self._lay_out()
        self._environment = {
            "PATH": os.environ.get("PATH", os.defpath), "HOME": self.path, "XDG_CONFIG_HOME": self.path, "LC_ALL": "C",
            "GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": os.devnull, "GIT_ATTR_NOSYSTEM": "1", "GIT_TERMINAL_PROMPT": "0",
            "GIT_NO_LAZY_FETCH": "1", "GIT_NO_REPLACE_OBJECTS": "1", "GIT_OPTIONAL_LOCKS": "0", "GIT_DIR": self.path,
        }  # fmt: skip
        self._in_tree: dict[str, str] = {}
        if bundle is not None:
            try:
                self.begin(bundle, lowers)
            except BaseException:
                self.close()
                raise

    def __enter__(self) -> "Workshop":
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        """End git and remove the repository. While a thread is in run(), that thread removes it at its end."""
        with self._state:
            self._closing = True
            if self._busy:
                return
        self._remove()

    def run(self, job: Callable[[], _T]) -> _T:
        """Run *job*, which uses this workshop, in a thread that may outlive the request.

        Raises:
            GitFailed: The workshop was closed.
        """
        with self._state:
            if self._closing:
                raise GitFailed("the merge was given up")
            self._busy = True
        try:
            return job()
        finally:
            with self._state:
                self._busy = False
                closing = self._closing
            if closing:
                self._remove()

    def _remove(self) -> None:
        self._end_cat()
        for fd in self._held:
            os.close(fd)
        self._held = []
        shutil.rmtree(self.path, ignore_errors=True)

    def _end_cat(self) -> None:
        if self._cat is not None:
            assert self._cat.stdin is not None and self._cat.stdout is not None
            self._cat.kill()
            self._cat.stdin.close()
            self._cat.stdout.close()
            self._cat.wait()
            self._cat = None

    def _lay_out(self) -> None:
        os.mkdir(os.path.join(self.path, "refs"))
        with open(os.path.join(self.path, "HEAD"), "w") as file:
            file.write("ref: refs/heads/workshop\n")
        version = 1 if self.form != "sha1" else 0
        with open(os.path.join(self.path, "config"), "w") as file:
            file.write(f"[core]\nrepositoryformatversion = {version}\nbare = true\nhooksPath = /dev/null\nfsmonitor = false\n")
            file.write("logAllRefUpdates = false\n[gc]\nauto = 0\n")
            if self.form != "sha1":
                file.write(f"[extensions]\nobjectFormat = {self.form}\n")

    # -- objects

    def begin(
        self, bundle: Bundle, lowers: Sequence[tuple[HostLower, bytes]] = (), packed: Container[bytes] = frozenset()
    ) -> None:  # fmt: skip
        """Starts a merge.

        Args:
            bundle: The objects of its trees. Its descriptors are the workshop's from now on.
            lowers: Object directories of the lower, to read from.
            packed: Paths of those loose objects of the bundle that are to be in ``pack``.
        """
        self._held += bundle.descriptors.values()
        given = dict(bundle.descriptors)
        bundle.descriptors.clear()
        self._end_cat()
        self._forget()
        have = os.fsencode(tempfile.mkdtemp(prefix="have-", dir=self.path))
        os.mkdir(os.path.join(have, b"pack"))
        self.pack = pack({name: data for name, data in bundle.contents.items() if name in packed}, self.form)
        rest = {name: data for name, data in bundle.contents.items() if self.pack is None or name not in self.pack.objects}
        other = pack({name: data for name, data in rest.items() if is_loose(name)}, self.form) if len(rest) > FEW else None
        for made in (self.pack, other):
            if made is not None:
                self._write(have, made.name + b".pack", made.data)
                self._write(have, made.name + b".idx", made.directory)
        directories = {b"pack"}
        for name, data in rest.items():
            if other is None or name not in other.objects:
                self._make_directory(have, name, directories)
                self._write(have, name, data)
        for name, fd in given.items():
            self._make_directory(have, name, directories)
            os.symlink(b"/proc/self/fd/%d" % fd, os.path.join(have, name))
        whole = [name for name, data in bundle.contents.items() if not is_loose(name) or self._is_whole(name, data)]
        self._raw.update((name, bundle.contents[name]) for name in whole if is_loose(name))
        self._latest = os.fsdecode(have)
        self.known |= dict.fromkeys([*whole, *given], os.fsdecode(have))
        self._see({os.fsdecode(have), *(self.known[name] for name in bundle.seen if name in self.known)}, lowers)

    def forget_merge(self) -> None:
        """Forget the objects that were collected for the latest merge and made in it, because its result is not used."""
        for path in [path for path, directory in self.known.items() if directory in (self._latest, self.objects)]:
            del self.known[path]
            self._raw.pop(path, None)

    def _is_whole(self, path: bytes, raw: bytes) -> bool:
        found = inflate(raw, self.form)
        return found is not None and path_of(found.oid) == path

    def _see(self, directories: set[str], lowers: Sequence[tuple[HostLower, bytes]]) -> None:
        self._visible = directories
        alternates = sorted(directories)
        for lower, path in lowers:
            if path not in self._lowers:
                self._lowers[path] = self._link_lower(len(self._lowers), lower, path)
            alternates.append(self._lowers[path])
        self.objects = tempfile.mkdtemp(prefix="objects-", dir=self.path)
        self._environment["GIT_OBJECT_DIRECTORY"] = self.objects
        self._environment["GIT_ALTERNATE_OBJECT_DIRECTORIES"] = ":".join(alternates)

    def _forget(self) -> None:
        """Removes what an earlier merge left, but for objects."""
        shutil.rmtree(os.path.join(self.path, "refs"))
        os.mkdir(os.path.join(self.path, "refs"))
        for name in ("index", "sparse-index", "settling", "shallow"):
            try:
                os.unlink(os.path.join(self.path, name))
            except FileNotFoundError:
                pass
        if self.has_attributes:
            for name in ("tree", "info"):
                shutil.rmtree(os.path.join(self.path, name), ignore_errors=True)
            self.has_attributes, self.drivers, self._in_tree = False, frozenset(), {}

    @staticmethod
    def _write(directory: bytes, path: bytes, data: bytes) -> None:
        with open(os.path.join(directory, path), "wb") as file:
            file.write(data)

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

    def apply(self, attributes: AttributeFiles) -> None:
        """Let git follow these attributes in this merge, where it is started with in_tree.

        A driver that the repository's settings define fails at once here: git takes the file for a conflict, and keeps ours.

        Raises:
            GitFailed: git cannot read the settings, or a path is too long.
        """
        self.has_attributes = True
        tree = self._lay_out_tree(attributes.files, {b"info/attributes": attributes.information})
        if attributes.settings:
            said = self.git("config", "--file", "-", "--list", "-z", "--name-only", data=attributes.settings)
            keys = [key for key in said.split(b"\0") if key.startswith(b"merge.") and key.endswith(b".driver")]
            self.drivers = frozenset(key[len(b"merge.") : -len(b".driver")] for key in keys)
        self._in_tree = {"GIT_WORK_TREE": tree, "GIT_CONFIG_COUNT": str(len(self.drivers))}
        for number, name in enumerate(sorted(self.drivers)):
            self._in_tree[f"GIT_CONFIG_KEY_{number}"] = f"merge.{os.fsdecode(name)}.driver"
            self._in_tree[f"GIT_CONFIG_VALUE_{number}"] = "false"

    def _lay_out_tree(self, files: Mapping[bytes, bytes], others: Mapping[bytes, bytes]) -> str:
        """Write the files that git is to read: those of the work tree, and *others*. Return the work tree."""
        tree = os.path.join(self.path, "tree")
        for name, data in ({b"tree/" + name: data for name, data in files.items()} | dict(others)).items():
            place = os.path.join(os.fsencode(self.path), name)
            try:
                os.makedirs(os.path.dirname(place), exist_ok=True)
                with open(place, "wb") as file:
                    file.write(data)
            except OSError as exc:
                raise GitFailed(f"{os.fsdecode(name)} cannot be used: {exc.strerror}") from None
        os.makedirs(tree, exist_ok=True)
        return tree

    def ask_ignored(self, files: IgnoreFiles, names: Sequence[bytes]) -> bytes:
        """Return those of the paths in the work tree that git ignores, each with a NUL behind it.

        Raises:
            GitFailed: git cannot read the index, or a path is too long.
        """
        others = {b"info/exclude": files.information} | ({b"index": files.tracked} if files.tracked else {})
        tree = self._lay_out_tree(files.rules, others)
        data = b"".join(name + b"\0" for name in names)
        return self.ask("check-ignore", "-z", "--stdin", data=data, good=(0, 1), GIT_WORK_TREE=tree)[0]

    # -- git

    def git(
        self, *arguments: str | bytes, data: bytes = b"", good: tuple[int, ...] = (0,), in_tree: bool = False, **more: str
    ) -> bytes:  # fmt: skip
        """Run git and return its output.

        Args:
            args: The arguments of git.
            data: Its standard input.
            good: The exit codes that mean success.
            in_tree: Follow the attributes that apply() was given.
            more: Additional environment variables.

        Raises:
            GitFailed: git ended with another exit code, or not within TIMEOUT_S.
        """
        return self.ask(*arguments, data=data, good=good, in_tree=in_tree, **more)[0]

    def ask(
        self, *arguments: str | bytes, data: bytes = b"", good: tuple[int, ...] = (0,), in_tree: bool = False, **more: str
    ) -> tuple[bytes, int]:  # fmt: skip
        """Run git as git() does, and return its output and exit code."""
        environment = self._environment | (self._in_tree if in_tree else {}) | more
        try:
            done = subprocess.run(
                ["git", *arguments], input=data, capture_output=True, env=environment,
                cwd=environment.get("GIT_WORK_TREE", self.path), pass_fds=self._held, timeout=TIMEOUT_S, check=False,
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
        found = self._read_loose(path_of(name))
        return found if found is not None else self._ask_cat(name)

    def _read_loose(self, path: bytes) -> tuple[bytes, bytes] | None:
        """Read a loose object of a branch, or one that was made in this merge. Return None for any other object."""
        if not is_loose(path):
            return None  # no id, whoever wrote it
        raw = self._raw.get(path) if self.known.get(path) in self._visible else None
        if raw is None:
            try:
                with open(os.path.join(os.fsencode(self.objects), path), "rb") as file:
                    raw = file.read()
            except OSError:
                return None
        found = inflate(raw, self.form)
        return (found.kind, found.data) if found is not None and path_of(found.oid) == path else None

    def _ask_cat(self, name: bytes) -> tuple[bytes, bytes]:
        if self._cat is None:
            self._cat = subprocess.Popen(
                ["git", "cat-file", "--batch"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                env=self._environment, cwd=self.path, pass_fds=self._held,
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
        """Return the object files that git created in this merge, by path below the objects directory."""
        made: dict[bytes, bytes] = {}
        for directory, _, names in os.walk(os.fsencode(self.objects)):
            for name in names:
                path = os.path.join(directory, name)
                with open(path, "rb") as file:
                    made[os.path.relpath(path, os.fsencode(self.objects))] = file.read()
        self.known |= {path: self.objects for path in made if path not in self.known}
        self._raw |= {path: raw for path, raw in made.items() if self.known[path] == self.objects}
        return made


def _directory(place: str) -> str:
    """Make a new directory in *place*, and remove what a killed daemon left there. Only one daemon uses *place*."""
    own = f"git-{os.getpid()}-"
    for name in os.listdir(place):
        if name.startswith("git-") and not name.startswith(own):
            shutil.rmtree(os.path.join(place, name), ignore_errors=True)
    return tempfile.mkdtemp(prefix=own, dir=place)
