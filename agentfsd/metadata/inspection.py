"""Check a database before it is opened, without changing it: is everything there that was acknowledged?

SQLite silently ignores the damaged end of its write-ahead log, and removes the log when it closes. So this check comes first, and
a damaged database is not opened. Each page of the main file has a checksum (page_checksums.py); the log has SQLite's own; the
journal says how many commits the database has had.
"""

import hashlib
import os
import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from urllib.parse import quote

from agentfsd.metadata import operation_journal
from agentfsd.metadata.clean_copy import COPY
from agentfsd.metadata.database import JOURNAL, parse_taken_over
from agentfsd.metadata.operation_journal import Header
from agentfsd.metadata.page_checksums import SUFFIX, ChecksumFile, WriteAheadLog

_SUMS_SINCE = 4  # version of the schema
_LATER = ("-wal", JOURNAL, SUFFIX, COPY)  # files that are only made after the main file has its first page
_STEP = 256  # pages
_SHOWN = 5  # pages whose numbers are told


@dataclass
class Findings:
    """What inspect() found.

    ``damage``: which rows are lost or wrong, one sentence each; if there is any, the database must not be used. ``notes``: what
    people should know. ``is_proven``: the rows are everything that was ever acknowledged, so an object without a reference never
    was. ``power_failed``: the daemon did not end in order, and the machine was restarted since (or the state is on another file
    system now). ``has_old_journal``: the journal is of schema version 3 or older.
    """

    damage: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    is_proven: bool = True
    ended_cleanly: bool = True
    power_failed: bool = False
    has_old_journal: bool = False
    lower: str = ""


def is_blank(path: str) -> bool:
    """Whether there is no database at *path*, not even a damaged one."""
    return not os.path.exists(path) or os.path.getsize(path) == 0


def describe_blank(path: str) -> str:
    return f"the metadata database {path} is {'empty' if os.path.exists(path) else 'missing'}"


def schema_version(path: str) -> int:
    """Return the schema version of a database, which a daemon may have open; 0 if it is new or missing.

    Source: the file format of SQLite, "user version number".
    """
    try:
        with open(path, "rb") as file:
            header = file.read(100)
    except FileNotFoundError:
        return 0
    return int.from_bytes(header[60:64], "big")


def this_run(path: str) -> bytes:
    """Return an identifier of this boot and this device.

    Within one run, a process reads what an earlier process wrote without a sync.
    """
    with open("/proc/sys/kernel/random/boot_id", "rb") as file:
        boot = file.read()
    return hashlib.blake2b(boot + str(os.stat(os.path.dirname(path)).st_dev).encode(), digest_size=16).digest()


def inspect(path: str) -> Findings:
    """Check the database at *path*. A database that was never made is sound."""
    findings = Findings()
    if is_blank(path):
        if any(os.path.exists(path + part) and os.path.getsize(path + part) for part in _LATER):
            findings.damage.append(f"{describe_blank(path)}, though what was made after it is there")
        return findings
    findings.ended_cleanly = not os.path.exists(path + "-wal")  # SQLite removes it on an orderly close
    try:
        sums: ChecksumFile | None = ChecksumFile(path, writes=False)
    except OSError:
        sums = None
    try:
        version, commits = _read_facts(path, sums, findings)
        findings.has_old_journal = sums is None and os.path.exists(path + JOURNAL) and operation_journal.is_old(path + JOURNAL)
        is_older = findings.has_old_journal or (version < _SUMS_SINCE and sums is None)
        if is_older or (not commits and _was_never_ready(path, sums)):
            findings.is_proven = findings.ended_cleanly
            return findings
        _check_pages(path, sums, findings)
        if not findings.damage:
            in_use = sums.in_use if sums is not None and sums.is_sound else not findings.ended_cleanly
            _check_journal(path, commits, in_use, findings)
    finally:
        if sums is not None:
            sums.close()
    findings.is_proven = findings.is_proven and not findings.damage
    return findings


def _was_never_ready(path: str, sums: ChecksumFile | None) -> bool:
    """Return whether the daemon was killed in its first start, or in the first start of this version.

    Before there is a journal there are no checksums, and nothing is acknowledged.
    """
    if sums is not None and not sums.is_empty:
        return False
    if not os.path.exists(path + JOURNAL):
        return True
    with open(path + JOURNAL, "rb") as file:
        return not any(file.read())


def _read_facts(path: str, sums: ChecksumFile | None, findings: Findings) -> tuple[int, int]:
    """(version of the schema, commits), as a daemon would find them; 99 for a version that cannot be read. Without any table it
    is 0: SQLite has made the file, and was killed before the first commit."""
    try:
        with reading(path) as db:
            version = int(db.execute("PRAGMA user_version").fetchone()[0])
            if not version and _was_never_ready(path, sums) and not db.execute("SELECT 1 FROM sqlite_master").fetchone():
                return 0, 0
            facts = dict(db.execute("SELECT key, value FROM fact WHERE key IN ('journal', 'lower')"))
            findings.lower = facts.get("lower", "")
            return version, parse_taken_over(facts.get("journal", ""))[1]
    except (sqlite3.DatabaseError, ValueError) as exc:
        findings.damage.append(f"the metadata database {path} cannot be read: {exc}")
        return 99, 0


@contextmanager
def reading(path: str) -> Iterator[sqlite3.Connection]:
    """Open a connection that writes nothing, not even when it closes, and takes no lock.

    The caller holds the state directory's lock. A log without any commit is hidden from SQLite,
    which would remove it when it closes.
    """
    how = "vfs=unix-none" if _log_has_commit(path) else "immutable=1"
    with closing(sqlite3.connect(f"file:{quote(path)}?mode=ro&{how}", uri=True, isolation_level=None)) as db:
        db.text_factory = lambda data: data.decode(errors="replace")
        db.execute("PRAGMA locking_mode = EXCLUSIVE")
        yield db


def _log_has_commit(path: str) -> bool:
    log = _open_log(path)
    if log is None:
        return False
    try:
        return log.has_commit()
    finally:
        os.close(log.fd)


def _open_log(path: str) -> WriteAheadLog | None:
    try:
        return WriteAheadLog(os.open(path + "-wal", os.O_RDONLY | os.O_CLOEXEC))
    except FileNotFoundError:
        return None


def _check_pages(path: str, sums: ChecksumFile | None, findings: Findings) -> None:
    name = os.path.basename(path)
    if sums is None or not sums.is_sound:
        findings.notes.append(f"the checksums of {name} were missing or damaged: only its structure could be checked")
        findings.is_proven = False
        _check_structure(path, findings)
        return
    wrong, unknown = [], 0
    held = _in_log(path)
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        for page in range(1, sums.count + 1, _STEP):
            for number, is_unknown in sums.wrong(fd, page, _STEP):
                if number not in held:
                    unknown += is_unknown
                    wrong += [] if is_unknown else [number]
    finally:
        os.close(fd)
    if unknown:
        findings.notes.append(f"{_count(unknown, 'checksum')} of {name} were damaged, and were made anew")
        findings.is_proven = False
        if not wrong:
            _check_structure(path, findings)
    if wrong:
        findings.damage.append(f"{describe_pages(wrong)} of {name} {'is' if len(wrong) == 1 else 'are'} not as written")


def describe_pages(wrong: list[int]) -> str:
    some = ", ".join(str(number) for number in wrong[:_SHOWN])
    return f"page {some}" if len(wrong) == 1 else f"{len(wrong)} pages ({some}{', ...' if len(wrong) > _SHOWN else ''})"


def _check_structure(path: str, findings: Findings) -> None:
    if findings.damage:
        return
    try:
        with reading(path) as db:
            said = [row[0] for row in db.execute("PRAGMA integrity_check(5)") if row[0] != "ok"]
    except sqlite3.DatabaseError as exc:
        said = [str(exc)]
    findings.damage += [f"{os.path.basename(path)}: {plain(sentence)}" for sentence in said]


def plain(said: str) -> str:
    """Return SQLite's description of damage as one line."""
    return "; ".join(filter(None, map(str.strip, re.sub(r"\*\*\* in database \w+ \*\*\*\n?", "", said).splitlines())))


def _in_log(path: str) -> set[int]:
    """Return the pages that SQLite reads from the write-ahead log."""
    log = _open_log(path)
    if log is None:
        return set()
    try:
        log.follow()
        return log.pages
    finally:
        os.close(log.fd)


def _check_journal(path: str, commits: int, in_use: bool, findings: Findings) -> None:
    """Check that the database has every commit, and the journal every record since the last one."""
    name = os.path.basename(path) + JOURNAL
    content = b""
    if os.path.lexists(path + JOURNAL):
        findings.ended_cleanly = False
        with open(path + JOURNAL, "rb") as file:
            content = file.read()
    header = operation_journal.read_header(content)
    if header is None:
        if in_use:
            findings.damage.append(
                f"{name} is {'damaged' if content else 'missing or empty'}, though the daemon did not end in order: what was "
                "acknowledged since the last commit, half a second at most, is lost, and perhaps more"
            )
        return
    findings.power_failed = header.run != this_run(path)
    _check_commits(path, commits, header, findings)
    chain = operation_journal.read_chain(content, header.number)
    if not chain.is_whole and not findings.damage:
        last = chain.numbered[-1][0] if chain.numbered else header.number
        _lost(findings, f"{name} is damaged behind its record {last}: what was acknowledged after "
              "that, half a second at most, is lost", strictly=False)  # fmt: skip


def _check_commits(path: str, commits: int, header: Header, findings: Findings) -> None:
    missing = header.commits - commits
    if missing > 0:
        problem = (
            f"{'the last commit' if missing == 1 else f'the last {missing} commits'} of the database "
            f"{'is' if missing == 1 else 'are'} missing (up to 500 operations each): "
            f"{os.path.basename(path)}-wal is damaged or was cut short"
        )
        _lost(findings, problem, strictly=commits < header.synced)
    elif findings.power_failed:
        findings.is_proven = False


def _lost(findings: Findings, problem: str, *, strictly: bool) -> None:
    """Report a loss. It counts as damage, unless the power failed and the data had never been synced."""
    if strictly or not findings.power_failed:
        findings.damage.append(problem)
        return
    findings.is_proven = False
    findings.notes.append(f"{problem}; the machine was started anew since, so this may be what was never synced")


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
