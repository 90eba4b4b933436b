"""The command `audit`, which shows the audit trail."""

import datetime
import sys
import time
from typing import TYPE_CHECKING

import click

from agentfs_client import wire
from agentfsd.cli.command_base import Failure, client, json_option, mount_option, plain
from agentfsd.cli.output import printing
from agentfsd.core.declared_settings import parse_age
from agentfsd.domain_errors import invalid

if TYPE_CHECKING:
    pass

_FOLLOW_EVERY_S = 0.5
_FARTHEST_NS = 1 << 62  # from 1970, in the years 1823 and 2116: a message takes no number far beyond
_MOST_ENTRIES = 10_000


@click.command()
@click.argument("branch", required=False)
@mount_option
@click.option(
    "--since",
    metavar="AGE",
    help="Only entries since then: an age (90 seconds, 15m, 1h, 2d) or a time (9:30, '2026-11-21 09:30').",
)
@click.option("--until", metavar="AGE", help="Only entries until then: an age or a time.")
@click.option("--pid", type=click.IntRange(min=1), help="Only changes by this process.")
@click.option("--path", "pattern", metavar="GLOB", help="Only paths that match; a pattern without a slash matches base names.")
@click.option(
    "--op",
    "kind",
    metavar="KIND",
    help="Only one kind: created, modified, deleted, renamed, attributes, snapshot, merge, bound, policy, refused, ...",
)
@click.option("-n", "--limit", type=click.IntRange(1, _MOST_ENTRIES), default=1000, show_default=True,
              help="Show at most this many entries, the newest.")  # fmt: skip
@click.option("-f", "--follow", is_flag=True, help="Then show new entries as they come, until Ctrl-C.")
@json_option
def audit(
    branch: str | None, named: str | None, since: str | None, until: str | None, pid: int | None, pattern: str | None,
    kind: str | None, limit: int, follow: bool, as_json: bool,
) -> None:  # fmt: skip
    """Show who changed what, and when.

    Each line names the time, the user, the process, the kind of change, the branch and the path. Without BRANCH, it covers all
    branches. It also shows requests that change no branch: policy, interpose, prune, gc, unmount, and refused requests.

    The daemon keeps the entries with the state, across restarts, up to 16 MiB: `agentfsd policy set audit.max_bytes 64M` changes
    the limit, and `audit.enabled no` switches the trail off. If entries are missing, a line says so: after `kill -9` of the
    daemon the last second, or entries for which the disk had no room. A file that a process writes all the time gets one entry a
    second.

    The trail does not show reads, nor changes that others make in the real directory. Writes through a mapping, or past the
    daemon (--io passthrough, forwarded descriptors), become one entry when they end, for the process that opened the file.
    Processes choose their own command names. A process that the daemon cannot identify is shown without a number.

    --json prints one document; with --follow, one object on each line.

    \b
    Example:
      agentfsd audit fix-1 --since 1h
      agentfsd audit --path 'src/**/*.c' --op deleted
      agentfsd audit --since 9:30 --until 10:00 --op policy
      agentfsd audit fix-1 --follow --json
    """
    since_ns, until_ns = _moment_ns(since), _moment_ns(until)
    with client(named) as daemon:

        def ask(after: int, most: int) -> list[wire.AuditEntry]:
            reply = daemon.audit(
                branch, since_ns=since_ns, until_ns=until_ns, pid=pid or 0, path=pattern or "", kind=kind or "", after=after,
                limit=most,
            )  # fmt: skip
            if not reply.enabled:
                raise Failure("no audit trail is written", "`agentfsd policy set audit.enabled yes` begins one")
            return reply.entries

        entries = ask(0, limit)
        if as_json and not follow:
            printing.as_json([plain(entry) for entry in entries])
            return
        _show(entries, as_json)
        last = entries[-1].id if entries else 0
        while follow:
            sys.stdout.flush()
            time.sleep(_FOLLOW_EVERY_S)
            entries = ask(last, _MOST_ENTRIES if last else limit)
            _show(entries, as_json)
            last = entries[-1].id if entries else last


def _moment_ns(words: str | None) -> int:
    """Return the time that an age, a time of today or a date means, in nanoseconds since the epoch; 0 for none.

    Raises:
        Refusal: It is none of these.
    """
    if not words:
        return 0
    return max(-_FARTHEST_NS, min(_moment_of(words), _FARTHEST_NS))


def _moment_of(words: str) -> int:
    if ":" not in words and "-" not in words:
        return time.time_ns() - int(parse_age(words) * 1e9)
    try:
        if "-" in words:
            moment = datetime.datetime.fromisoformat(words)
        else:
            of_day = datetime.time.fromisoformat(words if words.find(":") > 1 else f"0{words}")
            moment = datetime.datetime.combine(datetime.date.today(), of_day)
    except ValueError:
        raise invalid(f"{words!r} is not a time", "give an age such as 15m, 9:30, or '2026-11-21 09:30'") from None
    return int(moment.timestamp() * 1e9)


def _show(entries: list[wire.AuditEntry], as_json: bool) -> None:
    for entry in entries:
        if as_json:
            printing.as_json_line(plain(entry))
        else:
            printing.say(_line(entry))


def _line(entry: wire.AuditEntry) -> str:
    from agentfsd.telemetry.audit_database import KILLED, LOST, UNREADABLE  # imported here, or every command would load SQLite

    if entry.kind == LOST:
        gaps = {KILLED: "the daemon was killed: its last second may be missing", UNREADABLE: "what was older could not be read"}
        return f"{printing.when(entry.time_ns)}  ({gaps.get(entry.name) or f'{entry.name} entries could not be kept'})"
    process = f"{entry.pid} {printing.printable(entry.command)}".rstrip() if entry.pid else "-"
    user = str(entry.uid) if entry.uid >= 0 else "-"
    path = printing.quoted(entry.path_bytes)
    subject = f"{printing.quoted(entry.old_path_bytes)} -> {path}" if entry.old_path_bytes else path or entry.name
    return f"{printing.when(entry.time_ns)}  {user:<5} {process:<20} {entry.kind:<16} {entry.branch:<16} {subject}".rstrip()
