"""The requests about states of branches and the lower: compared, taken back, merged, committed, forgotten."""

from typing import Literal

import msgspec

from agentfs_client.message import LongRequest, Request


class Diff(Request, frozen=True, kw_only=True, tag="diff"):
    """Ask for the changes between two refs.

    Without ``a`` and ``b``: from the lower to the caller's branch. With ``b`` alone: from the lower to ``b``, or with ``own``
    from what ``b`` was created from. ``paths``, relative to the root, limit the result to files or directories and everything
    below; ``raw_paths`` are the same for names that are not UTF-8 (base64 in JSON). A renamed file matches by either name.
    ``histories``: describe git commits. Without ``internal``, the files of git's databases are omitted, unless ``paths`` limit
    the result.
    """

    a: str | None = None
    b: str | None = None
    paths: list[str] = []
    raw_paths: list[bytes] = []
    own: bool = False
    histories: bool = False
    internal: bool = True


class DiffPatch(LongRequest, frozen=True, kw_only=True, tag="diff.patch"):
    """Ask for changes like Diff, with patches in git's format, or with ``stat_only`` only with the counts.

    ``context_lines`` is the number of lines around a change. ``ignore_space``: lines that differ in white space only are equal,
    and files that differ in nothing else are omitted. ``own`` and ``internal`` are as in Diff.
    """

    a: str | None = None
    b: str | None = None
    paths: list[str] = []
    raw_paths: list[bytes] = []
    stat_only: bool = False
    context_lines: int = 3
    ignore_space: bool = False
    own: bool = False
    internal: bool = True


class DiffFiles(LongRequest, frozen=True, kw_only=True, tag="diff.files"):
    """Ask which files differ, each by its path. Directories are omitted, and a renamed file is deleted at one path and added at
    the other.

    ``a``, ``b``, ``histories`` and ``internal`` are as in Diff. ``count``: also count equal files, which means walking all of
    ``a``.
    """

    a: str | None = None
    b: str | None = None
    count: bool = False
    histories: bool = False
    internal: bool = True


class Log(Request, frozen=True, kw_only=True, tag="log"):
    ref: str | None = None


class PickedLines(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Lines of a file's old version that lines of its new version replace, or ``text``. Lines count from 0."""

    old_start: int
    old_count: int
    new_start: int
    new_count: int
    text: bytes | None = None


class PickedFile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The only changes of a file that a request takes over: lines, in order, and with ``mode`` the file's new mode.

    The request names its path as well. ``old_sha256`` and ``new_sha256``, in hex, are those of the versions that the caller has
    compared: if the file has another content by now, the request is refused with ``picked-stale``; "" stands for no file, None
    for any. ``old_path`` is the path of a renamed file in the old state; empty for the same path. ``whole``: the file is taken
    over as it is, if it is what was seen.
    """

    path: str = ""
    raw_path: bytes = b""
    old_path: str = ""
    raw_old_path: bytes = b""
    lines: list[PickedLines] = []
    mode: bool = False
    whole: bool = False
    old_sha256: str | None = None
    new_sha256: str | None = None


class Restore(LongRequest, frozen=True, kw_only=True, tag="restore"):
    """Restore a branch. ``paths`` and ``raw_paths`` as in Diff limit it; without them everything is restored at once.

    ``ref`` None, with paths: restore what the branch was made from. ``picked``: of these files only some lines, where the old
    version is the branch's and the new one that of ``ref``.
    """

    ref: str | None
    branch: str | None = None
    paths: list[str] = []
    raw_paths: list[bytes] = []
    picked: list[PickedFile] = []


class Rebase(LongRequest, frozen=True, kw_only=True, tag="rebase"):
    """Put the real directory's present state beneath a branch with a frozen base: a three-way merge.

    If the reply has conflicts, or with ``dry_run``, nothing has changed. ``favor`` says who wins where the branch and the real
    directory have changed the same; "" makes that a conflict. ``markers``: write conflicts of text into the files. ``hooks`` and
    ``internal``: as in Merge. None: the caller's branch.
    """

    branch: str | None = None
    favor: Literal["", "branch", "base"] = ""
    markers: bool = False
    dry_run: bool = False
    hooks: bool = False
    internal: bool = False


class Merge(LongRequest, frozen=True, kw_only=True, tag="merge"):
    """Merge the refs ``sources``, in order, into the branch ``target``: all of them or none.

    With ``leave_conflicting``, sources with conflicts are left out, and the others are merged.

    With ``conflicts``, conflicts are left in the target, to be settled there (see ConflictList). Until MergeEnd, the target can
    be neither committed nor merged. A source that changes what an earlier one has left open is left out.

    ``favor`` is the side that wins if both changed the same (union: both, line by line); "" makes that a conflict.
    ``whole_files``: two changes to one file are a conflict even if their lines differ. ``markers``: write text conflicts into the
    files. ``histories`` says how to combine git histories that have diverged: by a merge commit, by repeating their commits, as
    one commit, or side by side as branches ``agentfsd/NAME/BRANCH``; in the last case nothing else is merged.
    Without ``hooks`` a file that would run on the person's side is a conflict. ``internal``: list git's own files, too.

    ``paths`` and ``raw_paths`` as in Diff limit it; a later merge does not start from such a merge. ``picked``: of these files
    only some lines, where the old version is the one that the only source was made from.
    """

    sources: list[str]
    target: str | None = None
    favor: Literal["", "ours", "theirs", "union"] = ""
    whole_files: bool = False
    markers: bool = False
    leave_conflicting: bool = False
    conflicts: bool = False
    dry_run: bool = False
    hooks: bool = False
    histories: Literal["merge", "rebase", "squash", "beside"] = "merge"
    internal: bool = False
    paths: list[str] = []
    raw_paths: list[bytes] = []
    picked: list[PickedFile] = []


class Commit(LongRequest, frozen=True, kw_only=True, tag="commit"):
    """Apply a branch to the branch or the lower that it was created from.

    Paths that changed there meanwhile are conflicts, unless ``force`` overwrites them or ``merge`` merges them three-way.
    ``as_branches``: apply only its git branches, as ``agentfsd/NAME/BRANCH`` beside the existing ones. Without ``hooks`` files
    that would run on the person's side, such as git's hooks, are conflicts. ``internal`` and ``picked`` are as in Merge.
    """

    branch: str | None = None
    paths: list[str] = []
    raw_paths: list[bytes] = []
    picked: list[PickedFile] = []
    force: bool = False
    merge: bool = False
    dry_run: bool = False
    hooks: bool = False
    as_branches: bool = False
    internal: bool = False


class CommitEnd(LongRequest, frozen=True, kw_only=True, tag="commit.end"):
    """Finish an interrupted commit into the lower, or undo it with ``abort``."""

    abort: bool = False


class Undo(Request, frozen=True, kw_only=True, tag="undo"):
    """Undo the last restore, merge, commit to a branch, or discard."""


class UndoList(Request, frozen=True, kw_only=True, tag="undo.list"):
    pass


class Prune(Request, frozen=True, kw_only=True, tag="prune"):
    """Delete snapshots. An omitted limit is read from the retention settings. ``max_count`` is per branch; 0 means no limit."""

    branch: str | None = None
    max_count: int | None = None
    max_age: str | None = None  # such as "30d"
    keep_tagged: bool | None = None
    keep_named: bool | None = None
    dry_run: bool = False
