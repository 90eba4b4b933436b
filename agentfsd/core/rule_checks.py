"""What a ruled caller may do: turns the verdict about a path into the error that a program gets.

`hide`: a look-up finds nothing, a listing leaves the name out, and nothing can be made there (EACCES). `deny`: the name is seen,
its content is not (EACCES). `ask`: as `deny`, unless somebody allows it. `ro`: every change is refused (EROFS).
"""

import errno
from collections.abc import Callable

from agentfsd.core.rule_set import ALLOW, ASK, DENY, HIDE, RO, RuleSet
from agentfsd.core.tree import Inode, join

Asking = Callable[[bytes, str], None]  # (path, what is to be done): returns if it is allowed, raises PermissionError if not

_WRITE_BITS, _ALL_BITS = 0o222, 0o777


class RuledCaller:
    """A process for which rules hold.

    Args:
        rules: Its rules.
        asking: Asks somebody about a path whose rule says `ask`; None: nobody can be asked, so it is denied.
    """

    __slots__ = ("_asking", "rules")

    def __init__(self, rules: RuleSet, asking: Asking | None = None) -> None:
        self.rules, self._asking = rules, asking

    def hides(self, directory: Inode, name: bytes, *, is_dir: bool) -> bool:
        """Return whether a name does not exist for this caller."""
        return self.rules.verdict(directory, name, is_dir=is_dir) == HIDE

    def check_search(self, directory: Inode) -> None:
        """Check a look-up in a directory: in a denied one nothing is found, as in one of mode 000. PermissionError."""
        if self.rules.state_in(directory).inherited == DENY:
            raise _denied()

    def check_open(self, inode: Inode, *, writes: bool) -> None:
        """Check that the content of a file, or the listing of a directory, may be opened; with *writes*, changed too.

        Raises:
            PermissionError: EACCES.
            OSError: EROFS.
        """
        verdict = self.rules.verdict_of(inode)
        if verdict != ALLOW:
            self._check(verdict, inode.path, "write" if writes else "read", changes=writes)

    def check_change(self, inode: Inode) -> None:
        """Check that a file's content or attributes may be changed. Raises as check_open()."""
        self.check_open(inode, writes=True)

    def check_name(self, directory: Inode, name: bytes, *, is_dir: bool) -> None:
        """Check that a name may be made, removed or replaced. Raises as check_open()."""
        verdict = self.rules.verdict(directory, name, is_dir=is_dir)
        if verdict != ALLOW:
            self._check(verdict, join(directory.path, name), "change", changes=True)

    def check_symlink(self, directory: Inode, name: bytes) -> None:
        """Check that a symlink may be made, which must not stand for a directory that rules are about. Raises as check_open()."""
        self.check_name(directory, name, is_dir=False)
        state = self.rules.state_in(directory)
        if not self.rules.is_at_least(state.below(b"\0"), state.below(name)):
            raise _denied()

    def check_link(self, inode: Inode, directory: Inode, name: bytes) -> None:
        """Check that a file may get a further name: not one whose present name is ruled. Raises as check_open()."""
        verdict = self.rules.verdict_of(inode)
        if verdict != ALLOW:
            self._check(verdict, inode.path, "change", changes=True)
        self.check_name(directory, name, is_dir=False)

    def check_rename(self, old_dir: Inode, old: bytes, source: Inode, new_dir: Inode, new: bytes) -> None:
        """Check that a file or directory may get another path.

        Raises:
            OSError: EXDEV where something below a directory would be ruled less strictly: programs copy it then, and what they
                may not read stays. Else as check_open().
        """
        is_dir = source.is_dir
        self.check_name(old_dir, old, is_dir=is_dir)
        if not is_dir and not source.is_file:
            self.check_symlink(new_dir, new)
        self.check_name(new_dir, new, is_dir=is_dir)
        if not is_dir:
            return
        before, after = self.rules.state_in(old_dir).below(old), self.rules.state_in(new_dir).below(new)
        if not self.rules.is_at_least(after, before):
            raise OSError(errno.EXDEV, "rules are about what is below that directory")

    def shown_mode(self, inode: Inode, mode: int) -> int:
        """Return a mode with the permission bits that the rules leave, so that the kernel itself refuses an open."""
        verdict = self.rules.verdict_of(inode)
        return mode if verdict == ALLOW else masked_mode(verdict, mode)

    def _check(self, verdict: int, path: bytes, what: str, *, changes: bool) -> None:
        if verdict == RO:
            if changes:
                raise OSError(errno.EROFS, "a rule makes that path read-only")
        elif verdict == ASK and self._asking is not None:
            self._asking(path, what)
        else:
            raise _denied()


def masked_mode(verdict: int, mode: int) -> int:
    """Return a mode with the permission bits that a verdict leaves. `ask` leaves all: the answer may be yes."""
    if verdict == RO:
        return mode & ~_WRITE_BITS
    return mode & ~_ALL_BITS if verdict >= DENY else mode


def _denied() -> PermissionError:
    return PermissionError(errno.EACCES, "a rule denies that path")
