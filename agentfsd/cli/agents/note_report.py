"""The notes of which a session is told, in a few lines that a model reads. It imports nothing that takes long."""

from agentfsd.escape import printable, quoted

TYPE_CHECKING = False  # typing takes as long to load as an answer does; checkers know the name
if TYPE_CHECKING:
    from agentfsd.cli.quick_daemon import JsonReply

MOST = 5  # notes of which there is more than their number
_CUT = 300  # characters of a text


def report(reply: "JsonReply") -> str:
    """Return the lines about the notes of a reply to NoteTell; "" if there are none."""
    total = len(reply.notes) + reply.more
    if not total:
        return ""
    lines = [
        f"agentfsd: {total} note{'' if total == 1 else 's'} about this branch that you have not read (whole: `agentfsd notes "
        "list --full`; answer: `agentfsd notes reply ID TEXT`):",
        *map(_line, reply.notes),
    ]
    if reply.more:
        lines.append(f"and {reply.more} more: `agentfsd notes`")
    return "\n".join(lines)


def _line(note: "JsonReply") -> str:
    said = note.answers[-1].text if note.answers and not note.answers[-1].by_agent else note.text
    return f"#{note.id} {_place(note)}: {_beginning(said)}"


def _place(note: "JsonReply") -> str:
    if not note.path_bytes:
        return "the branch"
    gone = " (gone)" if note.file == "gone" else ""
    line = note.now_line or note.line
    outdated = " (the line has changed)" if note.place == "outdated" and not gone else ""
    return f"{quoted(note.now_path_bytes or note.path_bytes)}{f':{line}' if line else ''}{gone}{outdated}"


def _beginning(text: str) -> str:
    words = printable(" ".join(text.split()))
    return words if len(words) <= _CUT else f"{words[: _CUT - 1].rstrip()}…"
