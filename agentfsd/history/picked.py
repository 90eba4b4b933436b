"""States in which only some lines of changed files are taken over: what `commit -p` and its like commit, merge or restore.

A pick says lines of two versions of a file by number. It must never be applied to other versions than those that were seen.
"""

import errno
import hashlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from agentfsd.core.copyup import WantedAttributes
from agentfsd.core.open_trees import OpenTrees
from agentfsd.core.transplant import Transplant, attributes_of
from agentfsd.core.tree import Tree
from agentfsd.core.whole_contents import content_of
from agentfsd.domain_errors import Refusal, invalid
from agentfsd.history.paths import shown


class LineReplacement(NamedTuple):
    """Lines of the old version that the lines of the new version replace. Lines count from 0.

    Attributes:
        text: Replaces the old lines in the place of the new ones; None: the new ones do.
    """

    old_start: int
    old_count: int
    new_start: int
    new_count: int
    text: bytes | None = None


class PartialFile(NamedTuple):
    """What is taken over of one file that both states have.

    Attributes:
        path: Its path in the new state.
        old_path: Its path in the old state.
        lines: In the order of the old version, without overlaps.
        mode: Whether the new mode, owner and extended attributes are taken over, too.
        whole: The file is taken over as it is.
        old_sha256: Of the old version that was seen, and likewise of the new one: "" for no file, None for any.
    """

    path: bytes
    old_path: bytes
    lines: tuple[LineReplacement, ...]
    mode: bool
    whole: bool
    old_sha256: str | None
    new_sha256: str | None


class PickedContent(NamedTuple):
    """What a file is, or becomes."""

    content: bytes
    look: WantedAttributes


Picks = Sequence[PartialFile]


def check(picked: Picks, wanted: Sequence[bytes]) -> None:
    """Refuse picks of paths that are not among those of the request: nothing would come of them.

    Raises:
        Refusal: ``invalid``.
    """
    for file in picked:
        for path in (file.path, file.old_path):
            if path not in wanted:
                raise invalid(f"lines of {shown(path)} were picked, and its path was not", "name its path as well")


def contents(old: Tree, new: Tree, picked: Picks) -> dict[bytes, PickedContent]:
    """Return what each file becomes: *old*, with the picked lines and attributes of *new*. Files that become *new* are left out.

    Raises:
        Refusal: ``picked-stale`` if a file is not what was seen any more; ``invalid`` for lines that it does not have.
    """
    made = {}
    for file in picked:
        sides = (old, file.old_path, file.old_sha256), (new, file.path, file.new_sha256)
        seen = [_seen_at(*side) for side in sides if not file.whole or side[2] is not None]
        if file.whole:
            continue
        before, after = seen
        if before is None or after is None:
            raise _stale(file.path)
        content, look = _assembled(before.content, after.content, file), after.look
        if content == after.content and file.mode:
            continue
        if not file.mode:
            look = before.look._replace(atime_ns=look.atime_ns, mtime_ns=look.mtime_ns)
        made[file.path] = PickedContent(content, look)
    return made


def _seen_at(tree: Tree, path: bytes, sha256: str | None) -> PickedContent | None:
    """Return what a file is, if that is what was seen; None if there is no regular file.

    Raises:
        Refusal: It is something else by now.
    """
    try:
        inode = tree.walk(path)
    except (FileNotFoundError, NotADirectoryError):
        if sha256:
            raise _stale(path) from None
        return None
    found = PickedContent(content_of(inode), attributes_of(inode)) if inode.is_file else None
    if sha256 is not None and (found is None or hashlib.sha256(found.content).hexdigest() != sha256):
        raise _stale(path)
    return found


def _assembled(old: bytes, new: bytes, file: PartialFile) -> bytes:
    old_lines, new_lines = lines_of(old), lines_of(new)
    made, at = list[bytes](), 0
    for lines in file.lines:
        end, new_end = lines.old_start + lines.old_count, lines.new_start + lines.new_count
        is_inside = at <= lines.old_start <= end <= len(old_lines) and 0 <= lines.new_start <= new_end <= len(new_lines)
        if not is_inside:
            message = f"these are not lines of {shown(file.path)}: {tuple(lines[:4])}"
            raise invalid(message, "pick lines of the versions that were compared, in order")
        made += old_lines[at : lines.old_start]
        made += new_lines[lines.new_start : new_end] if lines.text is None else [lines.text]
        at = end
    return b"".join(made + old_lines[at:])


def lines_of(content: bytes) -> list[bytes]:
    """Return the lines of a file as diff counts them: each ends with a line feed, except perhaps the last one."""
    lines = [line + b"\n" for line in content.split(b"\n")]
    lines[-1] = lines[-1][:-1]
    return lines if lines[-1] else lines[:-1]


@contextmanager
def applied(trees: OpenTrees, tree: Tree, made: Mapping[bytes, PickedContent]) -> Iterator[Tree]:
    """Open *tree*, which is frozen, with these contents in the place of its own. The view goes at the end of the block."""
    if not made:
        yield tree
        return
    with trees.scratch(tree) as changed:
        transplant = Transplant(changed)
        for path, file in made.items():
            transplant.take(path, tree.walk(path), content=file.content, look=file.look)
        yield changed


def _stale(path: bytes) -> Refusal:
    message = f"{shown(path)} was changed since its lines were picked"
    return Refusal(errno.EBUSY, "picked-stale", message, "nothing was changed; look again, and pick again")
