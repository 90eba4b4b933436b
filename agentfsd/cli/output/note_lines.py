"""Notes about branches as lines for people. It knows no daemon."""

from collections.abc import Iterator, Sequence

from agentfs_client import wire
from agentfsd.cli.output import printing
from agentfsd.escape import printable, quoted

HEADERS = ("id", "about", "note", "by", "when", "answers", "state")
_CUT = 60  # characters of a text in a table


def place(note: wire.BranchNote) -> str:
    """Return what a note is about, such as "src/a.py:12-15": where that is now, as far as it is known."""
    if not note.path_bytes:
        return "the branch"
    path = quoted(note.now_path_bytes or note.path_bytes)
    first, last = (note.now_line, note.now_last_line) if note.now_line else (note.line, note.last_line)
    if not first:
        return path
    return f"{path}:{first}" if first == last else f"{path}:{first}-{last}"


def state(note: wire.BranchNote) -> str:
    """Return what became of a note and of its place, in few words."""
    words = [f"resolved by {note.resolved_by}"] if note.resolved_ns else []
    if note.file == "gone":
        words.append("the file is gone" if note.line else "gone")
    elif note.file == "renamed":
        words.append(f"renamed, was {quoted(note.path_bytes)}")
    if note.place == "outdated" and note.file != "gone":
        words.append("outdated")
    elif note.place == "moved":
        words.append(f"was line {note.line}")
    return ", ".join(words)


def first_words(text: str) -> str:
    """Return the beginning of a text on one line."""
    line = " ".join(text.split())
    return line if len(line) <= _CUT else line[: _CUT - 1].rstrip() + "…"


def rows(notes: Sequence[wire.BranchNote]) -> list[tuple[str, ...]]:
    """Return the rows below HEADERS."""
    return [
        (
            str(note.id), place(note), first_words(note.text), note.author, printing.when(note.created_ns),
            str(len(note.answers) or ""), state(note),
        )
        for note in notes
    ]  # fmt: skip


def whole(note: wire.BranchNote) -> Iterator[str]:
    """Yield the lines of a note with all of its text, the lines that it is about, and the answers."""
    about = state(note)
    yield f"#{note.id} {place(note)}{f' ({about})' if about else ''}"
    yield from (f"    > {line.expandtabs(4)}" for line in note.lines)
    yield from _said(note.author, note.created_ns, note.text)
    for answer in note.answers:
        yield from _said(answer.author, answer.created_ns, answer.text)


def _said(author: str, time_ns: int, text: str) -> Iterator[str]:
    yield f"  {author}, {printing.when(time_ns)}:"
    yield from (f"    {printable(line.expandtabs(4))}".rstrip() for line in text.split("\n"))
