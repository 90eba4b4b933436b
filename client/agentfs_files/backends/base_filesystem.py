"""The part of the Filesystem protocol that is the same for all backends: paths, limits, read-only mode, paging, searching.

A backend supplies a few operations on checked paths. It never sees the path that the caller wrote, and never decides whether
something may be written.
"""

import errno
import os
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING

from agentfs_files.backends.primitives import Primitives
from agentfs_files.filesystem import paging, search
from agentfs_files.filesystem.file_results import (
    FileEntry,
    FileStat,
    GlobMatch,
    GrepMatch,
    GrepMatches,
    ReadBytesResult,
    ReadResult,
    WriteMode,
    WriteResult,
)
from agentfs_files.filesystem.file_streams import BinaryReader, BinaryWriter, Utf8Reader, Utf8Writer, check_encoding
from agentfs_files.filesystem.filesystem_errors import RootError
from agentfs_files.filesystem.virtual_paths import check_new, join, name_of, normalize, parent_of, refusal

if TYPE_CHECKING:
    from agentfs_files.archive.unpack import Archive
    from agentfs_files.trees.tree_source import TreeSource

_MODES = ("create", "overwrite", "append")


class BaseFilesystem(Primitives):
    """A Filesystem over the primitives of a backend. Only one thread at a time may use it."""

    # -- streams

    def open_read(self, path: str) -> BinaryReader:
        where = self._find_file(path)
        return BinaryReader(where, self._open_read(where), self.limits.chunk_bytes)

    def open_write(self, path: str, *, mode: WriteMode = "overwrite", create_parents: bool = True) -> BinaryWriter:
        if mode not in _MODES:
            raise ValueError(f"the mode {mode!r} is none of create, overwrite, append")
        where = self._normalize(path)
        self._check_writable(where)
        if not where:
            raise RootError(errno.EISDIR, "Cannot write to root, which is a directory", path)
        stat = self._look(where)
        if stat is None:
            self._prepare(where, create_parents)
        elif stat.is_directory:
            raise refusal(errno.EISDIR, where)
        elif mode == "create":
            raise refusal(errno.EEXIST, where)
        elif not stat.is_file:
            raise _no_file(where)
        return BinaryWriter(where, self._open_write(where, mode))

    def open_text(self, path: str, *, encoding: str = "utf-8") -> Utf8Reader:
        check_encoding(encoding)
        return Utf8Reader(self.open_read(path))

    def open_write_text(
        self, path: str, *, mode: WriteMode = "overwrite", create_parents: bool = True, encoding: str = "utf-8"
    ) -> Utf8Writer:
        check_encoding(encoding)
        return Utf8Writer(self.open_write(path, mode=mode, create_parents=create_parents))

    def _check_opening(self, path: str, flags: int) -> None:
        """Check that a path may be opened with these flags of open(2)."""
        if flags & os.O_PATH:
            raise ValueError("with O_PATH nothing is opened that could be read or written")
        if flags & (os.O_ACCMODE | os.O_CREAT | os.O_TRUNC):
            self._check_writable(path)
        if flags & os.O_CREAT and self._look(path) is None:
            check_new(path, self.limits)

    # -- all at once

    def read_bytes(self, path: str, *, offset: int = 0, limit: int | None = None) -> ReadBytesResult:
        with self.open_read(path) as reader:
            return paging.read_bytes(reader, offset, limit, self.limits)

    def read(self, path: str, *, offset: int = 0, limit: int | None = None, encoding: str = "utf-8") -> ReadResult:
        check_encoding(encoding)
        with self.open_read(path) as reader:
            return paging.read_lines(reader, offset, limit, self.limits)

    def write_bytes(
        self, path: str, content: bytes, *, mode: WriteMode = "overwrite", create_parents: bool = True
    ) -> WriteResult:
        if len(content) > self.limits.max_write_bytes:
            raise ValueError(
                f"Content exceeds maximum of {self.limits.max_write_bytes} bytes for one write: it has {len(content)}; "
                "open_write() takes any size"
            )
        with self.open_write(path, mode=mode, create_parents=create_parents) as writer:
            writer.write(content)
        return WriteResult(writer.path, writer.bytes_written, mode)

    def write(self, path: str, content: str, *, mode: WriteMode = "overwrite", create_parents: bool = True) -> WriteResult:
        if not isinstance(content, str):
            raise TypeError(f"write() takes text, not {type(content).__name__}; write_bytes() takes bytes")
        return self.write_bytes(path, content.encode(), mode=mode, create_parents=create_parents)

    # -- looking

    def exists(self, path: str) -> bool:
        try:
            return self._look(self._normalize(path)) is not None
        except (ValueError, NotADirectoryError):  # PathEscapeError is one
            return False
        except OSError as exc:
            if exc.errno in (errno.ELOOP, errno.ENAMETOOLONG):
                return False
            raise

    def stat(self, path: str) -> FileStat:
        return self._stat(self._normalize(path))

    def list(self, path: str = ".") -> Sequence[FileEntry]:
        where = self._normalize(path)
        if not self._stat(where).is_directory:
            raise refusal(errno.ENOTDIR, where)
        return sorted(self._scan(where), key=lambda entry: entry.name)

    def glob(self, pattern: str, *, path: str = ".") -> Sequence[GlobMatch]:
        if not pattern:
            raise ValueError("an empty pattern matches nothing; `*` matches every file in a directory, `**` all beneath it")
        if pattern.endswith("/"):
            return []  # directories
        if pattern.startswith("/"):
            return [GlobMatch(match, True) for match in self._matching("", self._normalize(pattern))]
        return [GlobMatch(match, True) for match in self._matching(self._normalize(path), pattern)]

    def _matching(self, base: str, pattern: str, *, by_name: bool = False) -> Sequence[str]:
        fixed, rest, depth = ("", pattern, None) if by_name else search.split_pattern(pattern)
        start = self._normalize(join(base, fixed))
        matches = search.path_matcher(rest, by_name=by_name)
        if not self._is_directory(start):
            return []
        skip = len(start) + 1 if start else 0
        return sorted(path for path in self._walk(start, depth) if matches(path[skip:]))

    def grep(
        self,
        pattern: str,
        *,
        path: str = ".",
        glob: str | None = None,
        file_glob: str | None = None,
        max_matches: int | None = None,
    ) -> GrepMatches:
        if glob is not None and file_glob is not None:
            raise ValueError("glob and file_glob are the same; give one of them")
        most = self.limits.max_grep_matches if max_matches is None else max_matches
        if most < 0:
            raise ValueError(f"max_matches must be non-negative, not {most}")
        expression = search.compile_expression(pattern)
        lines: list[GrepMatch] = []
        if most:
            for where, source in self._contents(self._files_to_search(self._normalize(path), glob or file_glob)):
                with BinaryReader(where, source) as reader:
                    chunks = reader.chunks(min(search.BLOCK_BYTES, reader.size + 1))
                    lines.extend(search.grep_file(expression, where, chunks, most - len(lines)))
                if len(lines) == most:
                    break
        matches = GrepMatches(lines)
        matches.truncated = len(lines) == most
        return matches

    def _files_to_search(self, where: str, pattern: str | None) -> Sequence[str]:
        try:
            entry = self._stat(where)
        except (FileNotFoundError, NotADirectoryError):
            return []
        if not entry.is_directory:
            return [where] if entry.is_file else []
        if pattern is None:
            return sorted(self._walk(where))
        return self._matching(where, pattern, by_name="/" not in pattern)

    # -- changing

    def delete(self, path: str, *, recursive: bool = False) -> None:
        where = self._normalize(path)
        self._check_writable(where)
        if not where and not recursive:
            raise RootError(errno.EPERM, "Cannot delete root; with recursive=True all that is in it goes", path)
        if not self._stat_name(where).is_directory:
            self._remove_file(where)
        elif recursive:
            self._remove_tree(where)
        elif not any(True for _ in self._scan(where)):
            self._remove_empty(where)
        else:
            raise IsADirectoryError(
                errno.EISDIR, "the directory is not empty; recursive=True deletes it with all that is in it", where
            )

    def move(self, source: str, destination: str, *, create_parents: bool = True) -> None:
        old, new = self._normalize(source), self._normalize(destination)
        self._check_writable(old)
        if not old or not new:
            raise RootError(errno.EBUSY, "Cannot move root, nor put something in its place", source)
        self._stat_name(old)
        if new.startswith(f"{old}/"):
            raise OSError(errno.EINVAL, f"{old} cannot be moved into itself", new)
        try:
            self._stat_name(new)
        except FileNotFoundError:
            self._prepare(new, create_parents)
            self._move(old, new)
        else:
            raise refusal(errno.EEXIST, new)

    def _move(self, source: str, destination: str) -> None:
        """Move a file or directory. The source and the parent of the destination exist, and the destination did not exist at the
        last check.
        """
        from agentfs_files.filesystem.move_rules import move_by_copy

        move_by_copy(self, source, destination)

    def mkdir(self, path: str, *, parents: bool = True, exist_ok: bool = True) -> None:
        where = self._normalize(path)
        self._check_writable(where)
        entry = self._look(where)
        if entry is None:
            self._prepare(where, parents)
            self._make_shared(where, exist_ok)
        elif not (entry.is_directory and exist_ok):
            raise refusal(errno.EEXIST, where)

    # -- archives

    def export_archive(self, path: str | os.PathLike[str]) -> int:
        from agentfs_files.archive.zip_writer import export_archive

        return export_archive(self._archive_tree, self._locate, path)

    def import_archive(self, path: str | os.PathLike[str]) -> int:
        self._check_writable("")
        with self._open_archive(os.fspath(path)) as archive:
            return self._replace_all(archive)

    def _locate(self, path: str) -> bytes | None:
        """Return the path in this file system of a file of this machine; None if it is not part of it."""
        return None

    def _archive_tree(self) -> "AbstractContextManager[TreeSource]":
        """Return everything in the file system as a tree for an archive."""
        from agentfs_files.archive.zip_writer import FilesystemTree

        return nullcontext(FilesystemTree(self, lambda path: self._stat_name(path).is_directory))

    def _open_archive(self, path: str) -> "Archive":
        """Open an archive, or raise ArchiveError. Limits for depth and names do not apply, since the archived files existed
        before.
        """
        from agentfs_files.archive.unpack import Archive

        return Archive(path, self.limits.max_archive_bytes, foreign_links=False)

    def _replace_all(self, archive: "Archive") -> int:
        """Replace everything by the content of an archive, and return the number of files. An error leaves everything
        as it was.
        """
        from agentfs_files.archive.zip_reader import replace_with_backup

        return replace_with_backup(self.export_archive, self._overwrite, archive)

    def _overwrite(self, archive: "Archive") -> int:
        """Do the same as _replace_all, but an error leaves the work half done."""
        from agentfs_files.archive.plain_members import Plain
        from agentfs_files.trees.stored_tree import stream
        from agentfs_files.trees.tree_source import walk

        plain = Plain(archive)
        self._remove_tree("")
        for entry in walk(plain):
            path = os.fsdecode(entry.path)
            if entry.is_file:
                with BinaryWriter(path, self._open_write(path, "create")) as writer:
                    writer.write_all(stream(plain.chunks(entry), entry.size))
            elif path:
                self._make_directory(path)
        return plain.file_count

    # -- shared steps

    def _normalize(self, path: str) -> str:
        return normalize(path, (self.root,) if self._mount_point is None else (self._mount_point, self.root))

    def _check_writable(self, path: str) -> None:
        if self._read_only:
            raise PermissionError(errno.EROFS, "the file system is read-only", path or ".")

    def _look(self, path: str) -> FileStat | None:
        """Return the attributes; None if nothing exists there. Raises NotADirectoryError if a parent is a file."""
        try:
            return self._stat(path)
        except FileNotFoundError:
            return None

    def _is_directory(self, path: str) -> bool:
        try:
            return self._stat(path).is_directory
        except (FileNotFoundError, NotADirectoryError):
            return False

    def _find_file(self, path: str) -> str:
        where = self._normalize(path)
        entry = self._stat(where)
        if entry.is_directory:
            raise refusal(errno.EISDIR, where)
        if not entry.is_file:
            raise _no_file(where)
        return where

    def _prepare(self, path: str, parents: bool) -> None:
        """Check a path that is to be created, and create its parent directories."""
        check_new(path, self.limits)
        missing: list[str] = []
        above = parent_of(path)
        while above:
            entry = self._look(above)
            if entry is not None:
                if not entry.is_directory:
                    raise refusal(errno.ENOTDIR, above)
                break
            missing.append(above)
            above = parent_of(above)
        if missing and not parents:
            raise refusal(errno.ENOENT, missing[0])
        for directory in reversed(missing):
            self._make_shared(directory, True)

    def _make_shared(self, path: str, exist_ok: bool) -> None:
        """Create a directory that somebody else may be creating at the same time."""
        try:
            self._make_directory(path)
        except FileExistsError:
            if not (exist_ok and self._is_directory(path)):
                raise


def _no_file(path: str) -> OSError:
    return OSError(
        errno.EINVAL, "neither file nor directory (a pipe, a socket, a device): delete() is all that can be done", path
    )


def entry_of(stat: FileStat) -> FileEntry:
    """Return the entry that a listing would have."""
    size = stat.size_bytes if stat.is_file else None
    return FileEntry(name_of(stat.path), stat.path, stat.is_file, stat.is_directory, size)
