"""The status of a daemon as text for people.

It imports nothing that takes long: cli/quick_commands.py prints it, too.
"""

import time
from _collections_abc import Mapping, Sequence
from collections import Counter

from agentfsd.escape import printable, quoted
from agentfsd.review import branch_words

TYPE_CHECKING = False  # typing takes as long to load as an answer does; checkers know the name
if TYPE_CHECKING:
    from agentfs_client import wire  # only for types: cli/quick_commands.py renders replies that it has read as JSON

_LABEL = 12
_COMMANDS = 3  # that are shown of a branch; likewise private mounts, before they are only counted
_MOST_BRANCHES = 30
_LEAST_ROOM = 20
_NOT_SEEN = (
    "who reads and writes a file: whoever opened it is taken for it; what libfuse answers by itself (lseek, fallocate, ioctl, "
    "copy_file_range); reads from the kernel's cache"
)
_REMEMBERED = (("handles", "open file"), ("connections", "connection"), ("nodes", "inode"))  # that the kernel has of us


def status(reply: "wire.StatusReply", width: int = 0) -> str:
    """Render the status on one screen: what is mounted where, what needs attention, a table of branches, and the daemon.

    Args:
        reply: The status.
        width: The columns of the screen; 0: lines may be as long as they get.
    """
    now_ns = time.time_ns()
    why = f" ({reply.session_why})" if reply.session_why else ""
    urgent = [
        *(("DAMAGE" if not number else "", sentence) for number, sentence in enumerate(reply.damage)),
        *_no_room(reply),
        ("pending", "; ".join(_pending(reply))),
        ("if killed", f"it is not started again: {reply.restarts}" if reply.restarts else ""),
    ]
    facts = [
        ("daemon", f"agentfsd {reply.daemon}, process {reply.pid}, up {span(now_ns - reply.started_ns)}{_after(reply)}"),
        ("session", f"{reply.session}{why}{_private_mounts(reply)}"),
        ("contents", _contents(reply)),
        ("", reply.backstore_why),
        ("state", reply.state),
        ("memory", _memory(reply.resources)),
        ("load", _load(reply.resources)),
        ("forwarding", f"descriptors are forwarded ({reply.fd_forwarding})" if reply.fd_forwarding != "off" else ""),
        ("metrics", reply.metrics),
        ("audit", "" if reply.audit else "off: who changes what is not written down (`agentfsd policy set audit.enabled yes`)"),
        ("not seen", _NOT_SEEN if reply.session == "pyfuse3" else ""),
        ("slow", _slow(reply, now_ns)),
    ]
    lines = [printable(f"{reply.lower} is mounted on {reply.mountpoint}")]
    parts = [[*lines, *_labelled(urgent, width)], _branches(reply, now_ns, width), _labelled(facts, width)]
    return "\n\n".join("\n".join(part) for part in parts) + "\n"


def _labelled(facts: "Sequence[tuple[str, str]]", width: int) -> list[str]:
    lines = []
    for label, value in facts:
        lines += _wrapped(f"  {label:<{_LABEL}}", printable(value), width) if value else []
    return lines


def _wrapped(label: str, value: str, width: int) -> list[str]:
    room = width - len(label)
    parts = [value]
    if len(value) > room >= _LEAST_ROOM:
        import textwrap  # which imports re: that takes a short command a quarter of its time

        parts = textwrap.wrap(value, room, break_on_hyphens=False)
    return [f"{label}{parts[0]}", *(f"{'':<{len(label)}}{part}" for part in parts[1:])]


def _after(reply: "wire.StatusReply") -> str:
    if not reply.succeeds:
        return ""
    return f"; in the place of {plural(reply.succeeds, 'daemon')} killed or replaced"


def _private_mounts(reply: "wire.StatusReply") -> str:
    private = Counter(f"{connection.branch} ({connection.io})" for connection in reply.connections if connection.branch)
    if len(private) > _COMMANDS:
        kinds = Counter(connection.io for connection in reply.connections if connection.branch)
        return f"; {sum(kinds.values())} private mounts: {', '.join(f'{count} {io}' for io, count in kinds.items())}"
    return f"; private mounts: {', '.join(_times(name, count) for name, count in private.items())}" if private else ""


def _load(resources: Mapping[str, int]) -> str:
    if "requests" not in resources:
        return ""
    late_ms = resources.get("lag_us", 0) / 1000
    return (
        f"{plural(resources['requests'], 'request')} so far; within a minute one waited for its turn for up to {late_ms:.1f} ms"
    )


def _contents(reply: "wire.StatusReply") -> str:
    held = f"{reply.cap_backstore}: {size(reply.usage.get('bytes', 0))} in {plural(reply.usage.get('objects', 0), 'file')}"
    free, total = reply.resources.get("disk_free_bytes", 0), reply.resources.get("disk_total_bytes", 0)
    return f"{held}; {size(free)} of {size(total)} are free" if total else held


def _no_room(reply: "wire.StatusReply") -> list[tuple[str, str]]:
    """Describe what a full disk prevents, and what to do."""
    if not reply.resources.get("disk_full"):
        return []
    return [
        ("NO ROOM", "no room is left where contents are kept: writes fail with ENOSPC; nothing acknowledged is lost"),
        (
            "",
            "remove files, or make room on that disk: all goes on by itself then; what is kept for `agentfsd undo`, such as "
            "discarded branches, `agentfsd gc --forget-undo` frees",
        ),
    ]


def _memory(resources: Mapping[str, int]) -> str:
    if not resources.get("rss_bytes"):
        return ""
    parts = [size(resources["rss_bytes"])]
    parts += [plural(resources[name], noun) for name, noun in _REMEMBERED if resources.get(name)]
    return ", ".join(parts)


def _pending(reply: "wire.StatusReply") -> list[str]:
    """Describe unfinished work."""
    commit, resources = reply.pending_commit, reply.resources
    lines = []
    if commit is not None and commit.running:
        lines.append(f"a commit of {commit.branch or 'a branch'} is being written ({plural(commit.paths, 'path')})")
    elif commit is not None:
        lines.append(
            f"a commit of {commit.branch or 'a branch'} ({plural(commit.paths, 'path')}) was interrupted while {commit.phase}: "
            "`agentfsd commit --resume` finishes it, --abort takes it back"
        )
    lines += [merging(branch) for branch in reply.branches if branch.merging]
    if resources.get("garbage_objects"):
        lines.append(f"{plural(resources['garbage_objects'], 'file')} to be freed")
    if resources.get("notifications"):
        lines.append(f"{plural(resources['notifications'], 'notification')} that the kernel has not taken")
    return lines


def merging(branch: "wire.Branch") -> str:
    """Describe the unfinished merge of a branch, and the command that tells more."""
    left = f"{plural(branch.undecided, 'conflict')} undecided" if branch.undecided else "all conflicts are settled"
    what = f"the merge of {', '.join(branch.merging)} into {branch.name} is not finished"
    return f"{what} ({left}): `agentfsd conflicts {branch.name}`"


def _slow(reply: "wire.StatusReply", now_ns: int) -> str:
    count = reply.resources.get("slow_requests", 0)
    if not count or not reply.slow:
        return plural(count, "request") if count else ""
    last = reply.slow[-1]
    by = f" by {last.pid} {printable(last.command)}".rstrip() if last.pid else ""
    where = f" {printable(last.where)}" if last.where else ""
    inside = f" in {last.branch}" if last.branch else ""
    return f"{count} since it began; {_ago(now_ns, last.time_ns)}: {last.request}{where}{inside}{by} took {_took(last.took_ns)}"


def _branches(reply: "wire.StatusReply", now_ns: int, width: int) -> list[str]:
    rows = [["BRANCH", "CHANGES", "CHANGED", "LAST SNAPSHOT", "PROCESSES", "FROM"]]
    shown = reply.branches
    if len(shown) > _MOST_BRANCHES:  # those in which something is going on
        busiest = sorted(shown, key=lambda branch: (not branch.processes, -branch.changed_ns))[:_MOST_BRANCHES]
        ids = {branch.id for branch in busiest}
        shown = [branch for branch in shown if branch.id in ids]
    for branch in shown:
        snapshot = f"{branch.last_name}, {_ago(now_ns, branch.last_ns)}" if branch.last_name else "-"
        changed = _ago(now_ns, branch.changed_ns) if branch.changed_ns else "-"
        rows.append([branch.name, amount(branch), changed, snapshot, _processes(reply, branch), _made_from(branch, now_ns)])
    if any(branch.notes for branch in shown):
        for row, cell in zip(rows, ["NOTES", *(str(branch.notes or "-") for branch in shown)], strict=True):
            row.insert(2, cell)
    rows = [list(map(printable, row)) for row in rows]
    rows = fitting(rows, width, ("FROM", "LAST SNAPSHOT", "CHANGED", "CHANGES"))
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    if more := len(reply.branches) - len(shown):
        lines.append(f"and {more} others: `agentfsd branch list` shows all")
    for line in [*_shared(reply.branches), *remarks(shown)]:
        lines += _wrapped("", line, width)
    return lines


def _made_from(branch: "wire.Branch", now_ns: int) -> str:
    frozen = f", frozen {_ago(now_ns, branch.frozen_ns)}" if branch.frozen_ns else ""
    return f"{branch.base or '(the lower)'}{frozen}"


def amount(branch: "wire.Branch") -> str:
    """Return how many changes a branch has; with "~" before it if that is only how many are stored.

    A branch that was committed or merged says so: nobody needs to look whether its work is in the real directory, or elsewhere.
    """
    done = branch_words.kept(branch)
    return f"{'' if branch.counted else '~'}{branch.changed}{f', {done}' if done else ''}"


def overlaps(shared: int, conflicts: int) -> str:
    """Return how many of a branch's changes are at paths that others have changed, such as "3 !1"; after "!" the conflicts."""
    return (f"{shared} !{conflicts}" if conflicts else str(shared)) if shared else ""


def _shared(branches: "Sequence[wire.Branch]") -> list[str]:
    """Say which branches have changed the same paths."""
    sharing = [branch for branch in branches if branch.overlaps]
    if not sharing:
        return []
    clashing = sum(branch.conflicts for branch in sharing)
    conflicts = ", in ways that conflict" if clashing else ""
    names = ", ".join(branch.name for branch in sharing[:_COMMANDS]) + (" and others" if len(sharing) > _COMMANDS else "")
    return [f"! {names} have changed the same paths{conflicts}: `agentfsd status --overlaps` lists them"]


def remarks(branches: "Sequence[wire.Branch]") -> list[str]:
    """Say below a table of branches what was done with git in each, and what "~" means if it is there."""
    lines = [
        printable(f"git in {branch.name}: {in_repository(one.path_bytes, one.sentence)}")
        for branch in branches
        for one in branch.repositories
    ]
    if not all(branch.counted for branch in branches):
        lines.append("~ is the number of stored changes, which were not counted by path; `agentfsd diff --own BRANCH` lists them")
    return lines


def in_repository(path: bytes, sentence: str) -> str:
    """Put the repository's path before a sentence about it, unless it is the root."""
    return f"{quoted(path)}: {sentence}" if path else sentence


def fitting(rows: list[list[str]], width: int, spare: Sequence[str]) -> list[list[str]]:
    """Return a table, its headers first, that fits into *width* columns (0: any width).

    The columns named *spare* are left out, in that order, as far as necessary.
    """
    for name in spare:
        if not width or sum(max(map(len, column)) + 2 for column in zip(*rows, strict=True)) - 2 <= width:
            break
        at = rows[0].index(name)
        rows = [[*row[:at], *row[at + 1 :]] for row in rows]
    return rows


def _processes(reply: "wire.StatusReply", branch: "wire.Branch") -> str:
    """Return the number of processes in a branch, and the names of some."""
    if not branch.processes:
        return "-"
    commands = Counter(
        printable(binding.command) for binding in reply.bindings if binding.branch == branch.name and binding.command
    )
    names = [_times(name, count) for name, count in commands.most_common(_COMMANDS)]
    more = ", ..." if len(commands) > _COMMANDS else ""
    return f"{branch.processes}: {', '.join(names)}{more}" if names else str(branch.processes)


def _times(name: str, count: int) -> str:
    return f"{count} {name}" if count > 1 else name


def _took(ns: int) -> str:
    return f"{ns / 1e9:.1f} s" if ns >= 1_000_000_000 else f"{ns / 1e6:.0f} ms"


def plural(count: int, noun: str, nouns: str = "") -> str:
    """Return a number with its noun. *nouns*: the plural, if that is not made by an s."""
    return f"{count} {noun if count == 1 else nouns or noun + 's'}"


def _ago(now_ns: int, then_ns: int) -> str:
    return f"{span(now_ns - then_ns)} ago"


def span(ns: int) -> str:
    """Return a length of time in its largest unit."""
    seconds = max(0, ns // 1_000_000_000)
    for unit, size in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= size:
            return f"{seconds // size} {unit}"
    return f"{seconds} s"


def size(count: int) -> str:
    """Return a number of bytes in binary units."""
    value = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if value < 1024:
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1024
    return f"{value:.1f} TiB"
