"""The errors that rooms raise: plain OSError for file operations, Refusal for requests that a person or program can mend."""

import errno as _errno

NO_ROOM = (_errno.ENOSPC, _errno.EDQUOT)


class Refusal(OSError):
    """A request that was understood and refused; nothing was changed.

    ``code`` is a stable word for programs (``no-such-branch``), ``strerror`` one sentence for people,
    ``hint`` what would be right ("" when there is nothing to add).
    """

    def __init__(self, errno: int, code: str, message: str, hint: str = "") -> None:
        super().__init__(errno, message)
        self.code = code
        self.message = message
        self.hint = hint


class Missing(Refusal):
    """There is no branch, snapshot or the like with the name that was given, ``ref``."""

    def __init__(self, kind: str, ref: str, hint: str) -> None:
        super().__init__(_errno.ENOENT, f"no-such-{kind}", f"there is no {kind} named {ref!r}", hint)
        self.ref = ref


class DamagedContent(OSError):
    """The content of a file is missing, or something else stands in its place: whoever reads it gets EIO, never an empty file."""

    def __init__(self, message: str) -> None:
        super().__init__(_errno.EIO, message)


def not_found(kind: str, ref: str, hint: str = "") -> Missing:
    """ENOENT for a missing *kind* (``branch``, ``snapshot``, ``ref``)."""
    return Missing(kind, ref, hint)


def invalid(message: str, hint: str = "", code: str = "invalid") -> Refusal:
    """EINVAL: the request itself is wrong."""
    return Refusal(_errno.EINVAL, code, message, hint)
