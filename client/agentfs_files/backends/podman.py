"""A directory of a running container as a file system. The container needs only sh and the tools of coreutils and findutils, or
busybox. No file of this machine is read.

No symlink leads out of the directory. If a process in the container replaces files by symlinks meanwhile, it can at most show or
change what it can access in that container itself.
"""

import errno
import os
import re
import stat
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any
from uuid import UUID

from agentfs_client.extras import needed_for
from agentfs_files.backends.base_filesystem import BaseFilesystem
from agentfs_files.backends.container_attach import reason
from agentfs_files.backends.container_shell import ContainerShell, ContainerShells, quoted
from agentfs_files.backends.podman_files import TEMPORARY, WrittenFile, contents, located, open_source
from agentfs_files.filesystem.file_results import FileEntry, FileStat, WriteMode
from agentfs_files.filesystem.file_streams import Sink, Source
from agentfs_files.filesystem.records import FilesystemDiff, FilesystemSnapshot
from agentfs_files.filesystem.size_limits import DEFAULT_LIMITS, Limits
from agentfs_files.filesystem.virtual_paths import join, name_of

if TYPE_CHECKING:
    from podman import PodmanClient
    from podman.domain.containers import Container

    from agentfs_files.backends.podman_images import ImageSnapshots

_RECORD_END = b"//\n"
_OWN = re.compile(rf"{re.escape(TEMPORARY)}[0-9a-f]{{16}}\Z")


class PodmanFilesystem(BaseFilesystem):
    """The files of a directory in a container.

    Args:
        container: a container of podman-py, or its id or name.
        client: how to find a container that is given by id or name.
        uri: the address of a service instead of a client (``unix:///run/podman/podman.sock``); None means the usual one.
        user: the user to act as; None means the container's own.
        timeout_s: how long the container may stay silent, in seconds.

    Close the object, or use it as a context manager: it keeps a shell in the container.

    Raises:
        RuntimeError: any operation raises it if the container does not run or podman is missing.
    """

    def __init__(
        self,
        container: "Container | str",
        *,
        client: "PodmanClient | None" = None,
        uri: str | None = None,
        workdir: str = "/workspace",
        read_only: bool = False,
        mount_point: str | None = None,
        user: str | None = None,
        timeout_s: float = 120.0,
        limits: Limits = DEFAULT_LIMITS,
    ) -> None:
        super().__init__(read_only=read_only, mount_point=mount_point or workdir, limits=limits)
        self._own_client: Any = connect(uri) if client is None and isinstance(container, str) else None
        self._container = self._find(container, client or self._own_client) if isinstance(container, str) else container
        self._workdir, self._user, self._timeout_s = workdir, user, timeout_s
        self._shells = ContainerShells(self._open_shell)
        self._images: ImageSnapshots | None = None
        self._current: UUID | None = None

    def _find(self, name: str, client: "PodmanClient | None") -> "Container":
        assert client is not None
        try:
            return find_container(client, name)
        except RuntimeError:
            if self._own_client is not None:
                self._own_client.close()
            raise

    def _open_shell(self) -> ContainerShell:
        return ContainerShell(self._container, self._workdir, self._timeout_s, self._user)

    @property
    def root(self) -> str:
        return self._workdir

    @property
    def container_id(self) -> str:
        return str(self._container.id)

    @property
    def workdir(self) -> str:
        return self._workdir

    def close(self) -> None:
        """End the shell. The next operation would start another one."""
        self._shells.close()
        if self._own_client is not None:
            self._own_client.close()

    # -- what BaseFilesystem asks for

    def _stat(self, path: str) -> FileStat:
        return _file_stat(path, self._shells.ask(path, b"about " + located(path)))

    def _stat_name(self, path: str) -> FileStat:
        return _file_stat(path, self._shells.ask(path, b"about_name " + located(path)))

    def _scan(self, path: str) -> Iterator[FileEntry]:
        for below, mode, size, _ in self._records(path, b"entries " + quoted(path)):
            is_file = stat.S_ISREG(mode)
            yield FileEntry(name_of(below), join(path, below), is_file, stat.S_ISDIR(mode), size if is_file else None)

    def _walk(self, path: str, depth: int | None = None) -> Iterator[str]:
        limit = b"" if depth is None else b"%d" % depth
        for below, mode, _, _ in self._records(path, b"walk %b '%b'" % (quoted(path), limit)):
            if stat.S_ISREG(mode):
                yield join(path, below)

    def _records(self, path: str, request: bytes) -> Iterator[tuple[str, int, int, bool]]:
        """Yield paths beneath a directory with mode, size in bytes, and whether these belong to the target of a symlink."""
        held, is_whole = b"", False
        for chunk in self._shells.stream(path, request):
            *records, held = (held + chunk).split(_RECORD_END)
            for record in records:
                mode, size, _, below = record.split(b" ", 3)
                where = os.fsdecode(below.removeprefix(b"./"))
                is_whole = is_whole or where == "."
                if where != "." and not _OWN.match(name_of(where)):
                    yield where, int(mode.removeprefix(b"@"), 16), int(size), mode.startswith(b"@")
        if not is_whole:  # otherwise an unreadable directory would look empty
            raise OSError(
                errno.EIO, "find or stat does not work in the container as it does in coreutils and busybox", path or "."
            )

    def _contents(self, paths: Iterable[str]) -> Iterator[tuple[str, Source]]:
        return contents(self._shells, paths)

    def _open_read(self, path: str) -> Source:
        return open_source(self._shells, path)

    def _open_write(self, path: str, mode: WriteMode) -> Sink:
        return WrittenFile(self._shells, path, mode)

    def _make_directory(self, path: str) -> None:
        self._shells.ask(path, b"make " + located(path))

    def _remove_file(self, path: str) -> None:
        self._shells.ask(path, b"remove %b -f" % located(path))

    def _remove_tree(self, path: str) -> None:
        self._shells.ask(path, b"remove %b -rf" % located(path) if path else b"empty")

    # -- snapshots: images of the container

    @property
    def _snapshots(self) -> "ImageSnapshots":
        if self._images is None:
            from agentfs_files.backends.podman_images import ImageSnapshots

            self._images = ImageSnapshots(self._container, self._workdir, self._shells)
        return self._images

    def snapshot(self, *, tag: str | None = None) -> FilesystemSnapshot:
        sizes = [size for _, mode, size, is_link in self._records("", b"walk '' ''") if stat.S_ISREG(mode) and not is_link]
        snapshot = self._snapshots.take(tag, self._current, len(sizes), sum(sizes))
        self._current = snapshot.snapshot_id
        return snapshot

    def restore(self, snapshot: FilesystemSnapshot) -> None:
        self._check_writable("")
        self._snapshots.restore(snapshot)
        self._current = snapshot.snapshot_id

    def diff(self, base: FilesystemSnapshot, target: FilesystemSnapshot | None = None) -> FilesystemDiff:
        return self._snapshots.diff(base, target)

    def delete_snapshot(self, snapshot: FilesystemSnapshot) -> None:
        """Remove the image. Raises SnapshotNotFoundError."""
        self._snapshots.delete(snapshot)

    @property
    def current_snapshot_id(self) -> UUID | None:
        return self._current


def connect(uri: str | None) -> "PodmanClient":
    """Return a client. Raises ImportError that says what to install. The first request shows whether the service answers."""
    with needed_for("containers need", "podman"):
        from podman import PodmanClient
    return PodmanClient() if uri is None else PodmanClient(base_url=uri)


def find_container(client: "PodmanClient", name: str) -> "Container":
    """Return a container by id or name. Raises RuntimeError."""
    try:
        return client.containers.get(name)
    except OSError as exc:  # exceptions of requests and podman-py are OSErrors
        raise RuntimeError(f"the container {name} is out of reach: {reason(exc)}") from exc


def _file_stat(path: str, answer: bytes) -> FileStat:
    mode, size, seconds = answer.split()
    bits = int(mode, 16)
    is_file = stat.S_ISREG(bits)
    modified = datetime.fromtimestamp(int(seconds), UTC)
    return FileStat(path or ".", is_file, stat.S_ISDIR(bits), int(size) if is_file else 0, None, modified)
