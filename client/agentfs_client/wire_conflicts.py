"""The messages about conflicts that a merge has left in its target: listed, shown, decided; the merge finished or taken back."""

from typing import Literal

from agentfs_client.facts import PathName
from agentfs_client.message import LongRequest, Reply, Request


class LeftOpenConflict(PathName, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A conflict that a merge of ``source`` has left in a branch.

    ``kind`` is as in Conflict, or under-way: git has a merge to finish in the database ``path``. ``decided`` is ours, theirs,
    edited or marked; "" while it is undecided. ``markers``: the file got conflict markers.
    """

    kind: str
    message: str
    source: str = ""
    decided: str = ""
    markers: bool = False


class ConflictList(Request, frozen=True, kw_only=True, tag="conflict.list"):
    """Ask for the conflicts that a merge has left in a branch, or in a snapshot, and what was decided about them."""

    branch: str | None = None


class ConflictShow(Request, frozen=True, kw_only=True, tag="conflict.show"):
    """Ask for one version of a path with a conflict: of the common state, of the target before the merge, of the source, or as
    it is now.

    The reply has at most ``size`` bytes of a file's content, from ``offset`` on.
    """

    branch: str | None = None
    path: str = ""
    raw_path: bytes = b""
    side: Literal["base", "ours", "theirs", "now"]
    offset: int = 0
    size: int = 0


class ConflictResolve(LongRequest, frozen=True, kw_only=True, tag="conflict.resolve"):
    """Decide conflicts of a branch, all of them or none. A directory stands for all conflicts below it.

    ``how``: ours or theirs takes that side: in a text with markers for the lines that clash, of a conflict of attributes only
    these, else all of the file. edited: the file as it is; it must have no conflict markers. marked: the same, whatever is in it.

    ``seen``, with one path: nothing is decided unless it is still what ConflictVersionReply named so, or a file whose content has
    this hash (SHA-256, in hex). ``content``, with edited and ``seen``: what the file gets. ``merge``, if given, is as in
    MergeEnd.
    """

    branch: str | None = None
    paths: list[str] = []
    raw_paths: list[bytes] = []
    how: Literal["ours", "theirs", "edited", "marked"]
    content: bytes | None = None
    seen: str = ""
    merge: int = 0


class MergeEnd(LongRequest, frozen=True, kw_only=True, tag="merge.end"):
    """Finish the merge that has left conflicts in a branch, or take it back with ``abort``.

    It is not finished while conflicts are undecided, or git has a merge to finish in the branch. It is not taken back if other
    files were changed since, unless ``force`` says so. The reply tells which paths keep it from that.

    ``merge``, if given, is the number of the merge that was seen: nothing is done if the branch is in another one.
    """

    branch: str | None = None
    abort: bool = False
    force: bool = False
    merge: int = 0


class ConflictsReply(Reply, frozen=True, kw_only=True, tag="conflicts"):
    """The conflicts that a merge of ``sources`` has left in ``branch``, sorted by path.

    ``state`` is none (the branch is in no such merge), unfinished, finished or aborted. In the reply to ConflictResolve,
    ``resolved`` counts what was decided. In the reply to MergeEnd, ``conflicts`` are what keeps the merge from being finished,
    and ``changed`` the paths that keep it from being taken back. ``merge`` is the number of the merge, 0 if there is none.
    """

    branch: str
    state: str
    sources: list[str] = []
    conflicts: list[LeftOpenConflict] = []
    resolved: int = 0
    changed: list[PathName] = []
    merge: int = 0


class ConflictVersionReply(Reply, frozen=True, kw_only=True, tag="conflict.version"):
    """A version of a path with a conflict. ``kind`` is file, directory, symlink, other, or none: it does not exist there.
    ``data`` is a part of a file's content, or the text of a symlink. ``seen``, with side now and offset 0, names the version, for
    ConflictResolve.
    """

    kind: str
    mode: int = 0
    size: int = 0
    data: bytes = b""
    seen: str = ""
