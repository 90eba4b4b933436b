"""A ZIP as a source: one of ours, or any archive of the specification's form. Believes nothing that it says.

`Archive` has looked at everything before it is there to be read: names, types, what lies beneath what, sizes, check sums. So
whoever writes from it has either the whole tree or an error before the first byte.
"""

import errno
import os
import stat
import zipfile
import zlib
from collections.abc import Iterator
from dataclasses import replace
from types import TracebackType

import msgspec

from agentfsd.errors import Refusal
from agentfsd.exchange.archive import FILES, MANIFEST, VERSION
from agentfsd.exchange.stored import Stored, is_possible, restore, without_holes
from agentfsd.exchange.tree import Chunks, Entry, Step

DEFAULT_MAX_BYTES = 16 << 30

_MAX_MANIFEST_BYTES = 256 << 20
_MAX_TARGET_BYTES = 4095  # PATH_MAX, less the closing zero
_MAX_NAME_BYTES = 255
_CHUNK = 1 << 20
_UNIX = 3
_UTF8_BIT = 0x800
_FILES = FILES.encode()
_LOCAL_HEADER_BYTES = 30
_ENCRYPTED_BITS = 0x1 | 0x40
_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
_DAMAGE = (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, UnicodeDecodeError)


class _Manifest(msgspec.Struct):
    """Keys that are not named here are ignored."""

    version: str
    entries: list[Stored] | None = None


class Archive:
    """The tree in a ZIP, checked. Refusal (EINVAL) when it is damaged or hostile, (EFBIG) when it is larger than *max_bytes*."""

    def __init__(self, path: str, max_bytes: int = DEFAULT_MAX_BYTES, step: Step = lambda done, total: None) -> None:
        self._path = path
        try:
            self._zip = zipfile.ZipFile(path)
        except _DAMAGE as exc:
            raise self._bad(f"it cannot be read: {exc}") from exc
        try:
            members = self._check_members(max_bytes)
            self._check_contents(step)
            self._entries, self._members = self._combine(members)
            self._children = self._check_tree()
        except _DAMAGE as exc:
            self._zip.close()
            raise self._bad(f"it is damaged: {exc}") from exc
        except BaseException:
            self._zip.close()
            raise

    def close(self) -> None:
        self._zip.close()

    def __enter__(self) -> "Archive":
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

    # -- the source

    def __len__(self) -> int:
        return len(self._entries)

    def root(self) -> Entry:
        return self._entries[b""]

    def children(self, directory: Entry) -> list[Entry]:
        return self._children.get(directory.path, [])

    def chunks(self, entry: Entry) -> Chunks:
        offset = 0
        with self._zip.open(self._members[entry.path]) as member:
            while data := member.read(_CHUNK):
                yield from without_holes(data, offset)
                offset += len(data)

    # -- members

    def _check_members(self, max_bytes: int) -> dict[bytes, zipfile.ZipInfo]:
        """By path below files/; names, flags, methods and declared sizes are in order."""
        found: dict[bytes, zipfile.ZipInfo] = {}
        infos = self._zip.infolist()
        paths = set()
        for info in infos:
            path = _raw_name(info).removesuffix(b"/")
            self._check_path(path)
            self._check_kind(info)
            if path in paths:
                raise self._bad(f"it holds {_shown(path)} twice")
            paths.add(path)
            if path.startswith(_FILES):
                found[path.removeprefix(_FILES)] = info
        if MANIFEST.encode() not in paths and not found:
            raise self._bad("it holds neither manifest.json nor files/")
        self._check_sizes(infos, max_bytes)
        return found

    def _check_path(self, path: bytes) -> None:
        for name in path.split(b"/"):
            if name in (b"", b".", b".."):
                raise self._bad(f"it holds the path {_shown(path)}, which leads out of the tree")
            if b"\0" in name or len(name) > _MAX_NAME_BYTES:
                raise self._bad(f"it holds the name {_shown(name)}, which no file can have")

    def _check_kind(self, info: zipfile.ZipInfo) -> None:
        if "\\" in info.orig_filename:
            raise self._bad(f"it holds the path {info.orig_filename!r}: a backslash may be meant as a directory")
        if info.flag_bits & _ENCRYPTED_BITS:
            raise self._bad(f"{info.filename!r} is encrypted")
        if info.compress_type not in _METHODS:
            raise self._bad(f"{info.filename!r} is compressed by method {info.compress_type}; only deflate is read")
        kind = stat.S_IFMT(_mode(info))
        if kind not in (0, stat.S_IFREG, stat.S_IFDIR, stat.S_IFLNK) or (kind == stat.S_IFDIR) > info.is_dir():
            raise self._bad(f"{info.filename!r} is of no type that a member can have")
        if kind == stat.S_IFLNK and not 0 < info.file_size <= _MAX_TARGET_BYTES:
            raise self._bad(f"{info.filename!r} is a symlink to nowhere")
        if info.is_dir() and info.file_size:
            raise self._bad(f"the directory {info.filename!r} has content")

    def _check_sizes(self, infos: list[zipfile.ZipInfo], max_bytes: int) -> None:
        """Members must not share their compressed bytes: that is how a small archive becomes a large tree."""
        end = 0
        for info in sorted(infos, key=lambda info: info.header_offset):
            if info.header_offset < end:
                raise self._bad(f"{info.filename!r} lies over another member")
            end = info.header_offset + _LOCAL_HEADER_BYTES + info.compress_size
        total = sum(info.file_size for info in infos)
        if total > max_bytes:
            raise Refusal(
                errno.EFBIG, "too-large", f"{self._path} would take {total} bytes, more than the limit of {max_bytes}",
                "--max-size allows more, if you trust it",
            )  # fmt: skip

    def _check_contents(self, step: Step) -> None:
        """Reads everything once: the declared size is never exceeded in doing so, and the check sum must be right."""
        infos = self._zip.infolist()
        for done, info in enumerate(infos):
            size = 0
            with self._zip.open(info) as member:
                while data := member.read(_CHUNK):
                    size += len(data)
            if size != info.file_size:
                raise self._bad(f"{info.filename!r} has {size} bytes where {info.file_size} were declared")
            step(done, 2 * len(infos))

    # -- the tree

    def _combine(self, members: dict[bytes, zipfile.ZipInfo]) -> tuple[dict[bytes, Entry], dict[bytes, zipfile.ZipInfo]]:
        """What the manifest says of the members; what it does not mention is as the member alone says."""
        unclaimed = dict(members)
        entries: dict[bytes, Entry] = {}
        claimed: dict[bytes, zipfile.ZipInfo] = {}
        for stored in self._read_manifest():
            path = self._stored_path(stored)
            if path in entries:
                raise self._bad(f"its manifest lists {_shown(path)} twice")
            info = unclaimed.pop(_member_path(stored, path), None)
            entries[path] = self._described(stored, path, info)
            if info is not None:
                claimed[path] = info
        for path, info in unclaimed.items():
            if path in entries:
                raise self._bad(f"its manifest lists {_shown(path)} under another name")
            entries[path], claimed[path] = self._plain(path, info), info
        self._check_groups(entries, claimed)
        return entries, claimed

    def _read_manifest(self) -> list[Stored]:
        try:
            info = self._zip.getinfo(MANIFEST)
        except KeyError:
            return []
        if info.file_size > _MAX_MANIFEST_BYTES:
            raise self._bad(f"its manifest has {info.file_size} bytes")
        try:
            manifest = msgspec.json.decode(self._zip.read(info), type=_Manifest)
        except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as exc:
            raise self._bad(f"its manifest cannot be read: {exc}") from exc
        if manifest.version != VERSION:
            raise self._bad(f"its manifest is of version {manifest.version!r}; only {VERSION!r} is read")
        return manifest.entries or []

    def _stored_path(self, stored: Stored) -> bytes:
        try:
            path = stored.path_bytes()
        except ValueError as exc:
            raise self._bad(f"its manifest names {stored.path!r} in no readable way") from exc
        if path:
            self._check_path(path)
        return path

    def _described(self, stored: Stored, path: bytes, info: zipfile.ZipInfo | None) -> Entry:
        kind = stat.S_IFMT(stored.mode)
        has_member = kind in (stat.S_IFREG, stat.S_IFLNK)
        if not is_possible(stored) or (not path and kind != stat.S_IFDIR):
            raise self._bad(f"its manifest gives {_shown(path)} attributes that no file can have")
        if has_member != (info is not None and not info.is_dir()) and kind != stat.S_IFDIR:
            raise self._bad(f"its manifest and its members disagree about {_shown(path)}")
        if kind == stat.S_IFDIR and info is not None and not info.is_dir():
            raise self._bad(f"its manifest and its members disagree about {_shown(path)}")
        entry = replace(restore(stored, path), size=info.file_size if info is not None else 0)
        return replace(entry, target=self._target(info)) if info is not None and entry.is_link else entry

    def _plain(self, path: bytes, info: zipfile.ZipInfo) -> Entry:
        """As Info-ZIP has it; an archive that says nothing of modes leaves them open."""
        mode = _mode(info)
        if info.is_dir():
            return Entry(path, stat.S_IFDIR | (stat.S_IMODE(mode) or 0o755), loose=not mode)
        if stat.S_ISLNK(mode):
            return Entry(path, stat.S_IFLNK | 0o777, target=self._target(info))
        return Entry(path, stat.S_IFREG | (mode & 0o777 or 0o644), size=info.file_size, loose=not stat.S_IFMT(mode))

    def _target(self, info: zipfile.ZipInfo) -> bytes:
        """Data, whatever it says: nobody follows it while writing."""
        target = self._zip.read(info) if 0 < info.file_size <= _MAX_TARGET_BYTES else b""
        if not target or b"\0" in target:
            raise self._bad(f"{info.filename!r} is a symlink to nowhere")
        return target

    def _check_groups(self, entries: dict[bytes, Entry], members: dict[bytes, zipfile.ZipInfo]) -> None:
        """Names of one file must have its content."""
        first: dict[int, tuple[int, int, int]] = {}
        for path, entry in entries.items():
            if entry.group and not entry.is_dir:
                info = members.get(path)
                content = (entry.mode, info.CRC, info.file_size) if info else (entry.mode, 0, entry.rdev)
                if first.setdefault(entry.group, content) != content:
                    raise self._bad(f"{_shown(path)} is said to be another name of a file that differs")

    def _check_tree(self) -> dict[bytes, list[Entry]]:
        """By directory, sorted. Directories that are only implied are added; nothing may lie beneath anything else."""
        entries = self._entries
        for path in list(entries):
            for parent in _parents(path):
                above = entries.setdefault(parent, Entry(parent, stat.S_IFDIR | 0o755, loose=True))
                if not above.is_dir:
                    raise self._bad(f"it holds {_shown(path)} beneath {_shown(parent)}, which is no directory")
        entries.setdefault(b"", Entry(b"", stat.S_IFDIR | 0o755, loose=True))
        children: dict[bytes, list[Entry]] = {}
        for path in sorted(entries):
            if path:
                children.setdefault(entries[path].parent, []).append(entries[path])
        return children

    def _bad(self, what: str) -> Refusal:
        return Refusal(errno.EINVAL, "bad-archive", f"{self._path} is not imported: {what}", "nothing was changed")


def _mode(info: zipfile.ZipInfo) -> int:
    """st_mode where the archive was made on Unix; 0 where it does not say."""
    return info.external_attr >> 16 if info.create_system == _UNIX else 0


def _raw_name(info: zipfile.ZipInfo) -> bytes:
    """Unix tools write a name's bytes as they are, which zipfile takes for code page 437 unless it is told otherwise."""
    unsaid = info.create_system == _UNIX and not info.flag_bits & _UTF8_BIT
    return info.orig_filename.encode("cp437" if unsaid else "utf-8", "surrogateescape")


def _member_path(stored: Stored, path: bytes) -> bytes:
    return stored.name.removeprefix(FILES).removesuffix("/").encode("utf-8", "surrogateescape") if stored.name else path


def _parents(path: bytes) -> Iterator[bytes]:
    position = path.find(b"/")
    while position >= 0:
        yield path[:position]
        position = path.find(b"/", position + 1)


def _shown(path: bytes) -> str:
    return repr(os.fsdecode(path[:200]))
