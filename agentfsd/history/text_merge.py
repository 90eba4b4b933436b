"""Three-way merge of texts by lines, with libgit2. It must never know where the texts come from."""

import re
import secrets

from pygit2.enums import FileMode, MergeFavor, MergeFileFlag, MergeFlag

from agentfsd.history.objects import Objects

TEXT_BYTES = 4 << 20  # larger texts are not merged: all requests would wait while libgit2 does it
BASE = "base"  # what markers call the common state
_SHOWN = 80  # characters of a line in an excerpt

_FAVORS = {"": MergeFavor.NORMAL, "ours": MergeFavor.OURS, "theirs": MergeFavor.THEIRS, "union": MergeFavor.UNION}

Sides = tuple[bytes | None, bytes | None, bytes | None]  # base, ours, theirs; None for a side that does not exist


def is_text(*sides: bytes | None) -> bool:
    """Tell whether all sides can be merged by lines: none has a NUL in its first 8000 bytes, as in git, or is too large."""
    return not any(b"\0" in (side or b"")[:8000] or len(side or b"") > TEXT_BYTES for side in sides)


def merge_texts(base: bytes | None, ours: bytes, theirs: bytes, favor: str) -> bytes | None:
    """Merge by lines.

    Args:
        favor: Which side wins where both changed the same lines: ours, theirs, union (both), or "" for neither.

    Returns:
        The merged text; None if a side is no text, or if neither side wins where both changed the same lines.
    """
    return merge_lines(Objects(), (base, ours, theirs), favor) if is_text(base, ours, theirs) else None


def merge_lines(objects: Objects, sides: Sides, favor: str) -> bytes | None:
    """Merge texts as merge_texts() does, without its check. *objects* may be used again."""
    return _merge(objects, sides, favor, "file", MergeFileFlag.DEFAULT)


def merge_with_markers(objects: Objects, sides: Sides, names: tuple[str, str], base: str = "") -> bytes:
    """Merge texts. Lines that both sides changed are put between markers with the *names* of ours and theirs.

    With *base*, a name for the common state, its lines are between them (git's style diff3).
    """
    style = MergeFileFlag.STYLE_DIFF3 if base else MergeFileFlag.DEFAULT
    merged, token = _with_token(objects, sides, style)
    for marker, name in ((b"<<<<<<< ", names[0]), (b">>>>>>> ", names[1]), (b"||||||| ", base)):
        merged = merged.replace(marker + token, marker + name.encode())
    return merged


def has_markers(text: bytes, names: tuple[str, str]) -> bool:
    """Tell whether a text has conflict markers with the *names* of ours and theirs, or with the commits that git names."""
    ours, theirs = (re.escape(name.encode()) for name in names)
    shown = rb"(?:%s|%s|%s|[0-9a-f]{7,64})(?::[^\n]*)?" % (ours, theirs, BASE.encode())
    return re.search(rb"^(?:<{7,}|>{7,}|\|{7,}) %s\r?$" % shown, text, re.MULTILINE) is not None


def first_clash(objects: Objects, sides: Sides) -> tuple[str, str]:
    """Find the first line of ours and of theirs where both changed the same lines; "" for a side that removed them."""
    merged, token = _with_token(objects, sides)
    _, found, rest = merged.partition(b"<<<<<<< " + token + b"\n")
    if not found:
        return "", ""
    ours, _, rest = rest.partition(b"=======\n")
    theirs = rest.partition(b">>>>>>> " + token)[0]
    return _first_line(ours), _first_line(theirs)


def _with_token(
    objects: Objects, sides: Sides, style: MergeFileFlag = MergeFileFlag.DEFAULT
) -> tuple[bytes, bytes]:  # fmt: skip
    """Return the text merged with markers, and the random word in its markers, which is in none of the texts."""
    token = secrets.token_hex(16)
    merged = _merge(objects, sides, "", token, MergeFileFlag.ACCEPT_CONFLICTS | style)
    assert merged is not None
    return merged, token.encode()


def _merge(objects: Objects, sides: Sides, favor: str, name: str, flag: MergeFileFlag) -> bytes | None:
    base, ours, theirs = (
        objects.tree({name.encode(): (objects.blob(side), FileMode.BLOB)} if side is not None else {}) for side in sides
    )  # fmt: skip
    flags = MergeFileFlag.DIFF_PATIENCE | flag
    index = objects.repository.merge_trees(base, ours, theirs, favor=_FAVORS[favor], flags=MergeFlag(0), file_flags=flags)
    if index.conflicts is not None and any(True for _ in index.conflicts):
        return None
    return objects.data(index[name].id)


def _first_line(text: bytes) -> str:
    return text.partition(b"\n")[0].decode("utf-8", "backslashreplace").strip()[:_SHOWN]
