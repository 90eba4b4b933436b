"""Asks git which paths its rules exclude. It imports nothing that takes long.

git is started before the paths are known: it reads the repository's settings while the daemon looks for changes. It runs none of
the repository's programs for this question, and does not read the index. libgit2 in the daemon would wait for its own mount.
"""

import os
import select
import time
from _collections_abc import Mapping

from agentfsd.cli import git_environment

TYPE_CHECKING = False  # typing takes as long to load as an answer does; checkers know the name
if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self

_PATIENCE_S = 1.0
_SIGKILL = 9  # signal itself makes enums of all its constants, which takes long
_PLAIN = b"./"  # before each path: git takes one that begins with a colon for a pattern


class IgnoredPaths:
    """A question to git, which can be asked once. Leaving it ends git."""

    def __init__(self, root: str) -> None:
        self._root, self._pid, self._feed, self._result = root, 0, -1, -1
        if os.path.lexists(os.path.join(root, ".git")):
            self._start(["git", "-C", root, "-c", "core.fsmonitor=false", "check-ignore", "--no-index", "--stdin", "-z"])

    def __enter__(self) -> "Self":
        return self

    def __exit__(self, kind: "type[BaseException] | None", exc: "BaseException | None", trace: "TracebackType | None") -> None:
        for fd in (self._feed, self._result):
            if fd >= 0:
                os.close(fd)
        if self._pid:
            os.kill(self._pid, _SIGKILL)
            os.waitpid(self._pid, 0)

    def among(self, changed: Mapping[bytes, bool]) -> set[bytes]:
        """Return those paths that git's rules exclude; none if the root is no work tree, or git is missing or slow.

        Args:
            changed: Paths in the root, and whether each is there.
        """
        if not self._pid:
            return set()
        asked = [path for path in changed if not self._is_behind_a_link(path, changed)]
        said = self._talk(b"".join(_PLAIN + path + b"\0" for path in asked))
        return {name.removeprefix(_PLAIN) for name in said.split(b"\0") if name}

    def _is_behind_a_link(self, path: bytes, changed: Mapping[bytes, bool]) -> bool:
        """Return whether a path is gone because one above it is a symlink now. git answers no question with such a path."""
        if changed[path]:
            return False
        above = path.rpartition(b"/")[0]
        while above:
            if changed.get(above):
                return os.path.islink(os.path.join(os.fsencode(self._root), above))
            above = above.rpartition(b"/")[0]
        return False

    def _start(self, command: list[str]) -> None:
        source, feed = os.pipe()
        result, sink = os.pipe()
        null = os.open(os.devnull, os.O_RDWR)
        self._feed, self._result = feed, result
        try:
            actions = [(os.POSIX_SPAWN_DUP2, source, 0), (os.POSIX_SPAWN_DUP2, sink, 1), (os.POSIX_SPAWN_DUP2, null, 2)]
            self._pid = os.posix_spawnp("git", command, git_environment.own(), file_actions=actions)
        except OSError:  # it is not installed
            pass
        finally:
            for fd in (source, sink, null):
                os.close(fd)

    def _talk(self, given: bytes) -> bytes:
        """Give git its input and return its output; b"" if that takes too long."""
        said, ends = b"", time.monotonic() + _PATIENCE_S
        os.set_blocking(self._feed, False)
        while (left := ends - time.monotonic()) > 0:
            readable, writable, _ = select.select([self._result], [self._feed] if given else [], [], left)
            try:
                if writable:
                    given = given[os.write(self._feed, given[:65536]) :]
            except OSError:  # it has ended early
                return b""
            if not given and self._feed >= 0:
                os.close(self._feed)
                self._feed = -1
            if readable:
                part = os.read(self._result, 65536)
                if not part:
                    return said
                said += part
        return b""
