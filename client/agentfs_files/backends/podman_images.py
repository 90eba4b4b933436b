"""Snapshots of a directory in a container as images of the whole container, made by `podman commit`.

Restoring replaces only that directory; the container keeps running.
"""

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from enum import StrEnum
from secrets import token_hex
from typing import IO, TYPE_CHECKING, Any, cast
from uuid import UUID, uuid4

from agentfs_files.backends.container_attach import api_of, reason
from agentfs_files.backends.container_shell import ContainerShells, quoted
from agentfs_files.backends.podman_files import tar_members
from agentfs_files.filesystem.filesystem_errors import (
    SnapshotCreationError,
    SnapshotError,
    SnapshotIncompatibleError,
    SnapshotNotFoundError,
    SnapshotRestoreError,
)
from agentfs_files.filesystem.records import FilesystemDiff, FilesystemSnapshot
from agentfs_files.filesystem.virtual_paths import name_of

if TYPE_CHECKING:
    from podman.domain.containers import Container

BACKEND = "podman"
_REPOSITORY = "localhost/agentfs-snapshot"
_PIECE = 1 << 20  # bytes

_Contents = dict[str, tuple[int, bytes]]


class PodmanSnapshotStrategy(StrEnum):
    """How to take a snapshot of a container. Source: the file system protocol, version 1, snapshots of containers."""

    OVERLAY_REFLINK = "overlay_reflink"
    OVERLAY_COPY = "overlay_copy"
    CONTAINER_COMMIT = "container_commit"
    CONTAINER_CHECKPOINT = "checkpoint"


class ImageSnapshots:
    """Snapshots of one running container. Any container with that directory at the same service can restore them."""

    def __init__(self, container: "Container", workdir: str, shells: ContainerShells) -> None:
        self._container, self._workdir, self._shells = container, workdir.rstrip("/"), shells
        self._known: dict[str, _Contents] = {}

    def take(self, tag: str | None, parent: UUID | None, file_count: int, total_bytes: int) -> FilesystemSnapshot:
        """Take a snapshot. Raises SnapshotCreationError."""
        self._check_place()
        snapshot_id = uuid4()
        try:
            image = commit(self._container, snapshot_id)
        except OSError as exc:
            raise SnapshotCreationError(f"the container {self._container.name} was not committed: {reason(exc)}") from exc
        return FilesystemSnapshot(
            snapshot_id, datetime.now(UTC), image, self._workdir, tag=tag, parent_id=parent, file_count=file_count,
            total_bytes=total_bytes, backend=BACKEND, strategy=PodmanSnapshotStrategy.CONTAINER_COMMIT.value,
        )  # fmt: skip

    def _check_place(self) -> None:
        """Refuse a directory on a mount, since images do not contain mounts."""
        if not self._workdir:
            raise SnapshotCreationError("the root of a container cannot be put back; give a workdir such as /workspace")
        for mount in self._container.inspect().get("Mounts") or ():
            where = str(mount["Destination"]).rstrip("/")
            if f"{self._workdir}/".startswith(f"{where}/") or where.startswith(f"{self._workdir}/"):
                raise SnapshotCreationError(
                    f"{where} is mounted into the container, so it would be no part of the image; PodmanSandbox takes "
                    "snapshots of a mounted workspace"
                )

    def restore(self, snapshot: FilesystemSnapshot) -> None:
        """Restore the directory. If this raises SnapshotRestoreError, the directory is unchanged."""
        new, old = f".agentfs-restore-{token_hex(8)}", f".agentfs-replaced-{token_hex(8)}"
        with self._shadow(snapshot) as shadow:
            try:
                self._shells.ask("", b"unpack " + quoted(new), _pieces(self._tar(shadow)))
                base = name_of(self._workdir)
                self._shells.ask("", b"exchange %b %b %b" % (quoted(new), quoted(base), quoted(old)))
            except OSError as exc:
                raise SnapshotRestoreError(f"the snapshot {snapshot.commit_ref[:12]} was not restored: {exc}") from exc

    def diff(self, base: FilesystemSnapshot, target: FilesystemSnapshot | None) -> FilesystemDiff:
        before = self._contents(base)
        after = self._contents(target) if target is not None else self._read(self._container)
        both = before.keys() & after.keys()
        modified = sorted(path for path in both if before[path] != after[path])
        return FilesystemDiff(
            tuple(sorted(after.keys() - both)), tuple(modified), tuple(sorted(before.keys() - both)), len(both) - len(modified)
        )

    def delete(self, snapshot: FilesystemSnapshot) -> None:
        self._check_own(snapshot)
        try:
            self._images.remove(snapshot.commit_ref, force=True)
        except OSError as exc:
            raise self._unknown(snapshot, exc) from exc
        self._known.pop(snapshot.commit_ref, None)

    def _contents(self, snapshot: FilesystemSnapshot) -> _Contents:
        if snapshot.commit_ref not in self._known:
            with self._shadow(snapshot) as shadow:
                self._known[snapshot.commit_ref] = self._read(shadow)
        return self._known[snapshot.commit_ref]

    def _read(self, container: "Container") -> _Contents:
        """Return the size in bytes and the digest of each file in the directory."""
        contents: _Contents = {}
        for member, file in tar_members(self._tar(container)):
            path = member.name.partition("/")[2]
            if file is not None:
                contents[path] = (member.size, _digest(file))
            elif member.islnk():
                contents[path] = contents[member.linkname.partition("/")[2]]
        return contents

    def _tar(self, container: "Container") -> Iterator[bytes]:
        response = api_of(container).get(f"/containers/{container.id}/archive", params={"path": self._workdir}, stream=True)
        try:
            response.raise_for_status()
            yield from response.iter_content(_PIECE)
        finally:
            response.close()

    @contextmanager
    def _shadow(self, snapshot: FilesystemSnapshot) -> Iterator["Container"]:
        """Yield a container of the image that never runs."""
        self._check_own(snapshot)
        try:
            shadow = cast(Any, self._container.manager).create(snapshot.commit_ref, ["true"], network_mode="none")
        except OSError as exc:
            raise self._unknown(snapshot, exc) from exc
        try:
            yield shadow
        finally:
            shadow.remove(force=True)

    @property
    def _images(self) -> Any:
        from podman.domain.images_manager import ImagesManager

        return ImagesManager(client=self._container.client)

    def _check_own(self, snapshot: FilesystemSnapshot) -> None:
        if snapshot.backend != BACKEND or snapshot.strategy != PodmanSnapshotStrategy.CONTAINER_COMMIT.value:
            kind = f"{snapshot.backend or 'another file system'}, {snapshot.strategy or 'of no known kind'}"
            raise SnapshotIncompatibleError(f"{snapshot.commit_ref} is not an image of a container ({kind})")
        if snapshot.root_path != self._workdir:
            raise SnapshotIncompatibleError(f"the snapshot is of {snapshot.root_path}, and this file system is {self._workdir}")

    def _unknown(self, snapshot: FilesystemSnapshot, exc: Exception) -> SnapshotError:
        try:
            is_known = self._images.exists(snapshot.commit_ref)
        except OSError:
            is_known = True  # it may exist
        if not is_known:
            return SnapshotNotFoundError(f"Unknown snapshot: podman has no image {snapshot.commit_ref[:12]}; was it removed?")
        return SnapshotRestoreError(f"podman did not give the image {snapshot.commit_ref[:12]}: {reason(exc)}")


def commit(container: "Container", snapshot_id: UUID) -> str:
    """Commit a container and return the id of the new image. The container is paused meanwhile if it has cgroups; podman cannot
    pause it without.
    """
    from podman.errors import APIError

    try:
        image = container.commit(_REPOSITORY, snapshot_id.hex, pause=True)
    except APIError as exc:
        if "cgroup" not in reason(exc):
            raise
        image = container.commit(_REPOSITORY, snapshot_id.hex, pause=False)
    return str(image.id)


def _digest(file: IO[bytes]) -> bytes:
    digest = hashlib.sha256()
    while piece := file.read(_PIECE):
        digest.update(piece)
    return digest.digest()


def _pieces(tar: Iterator[bytes]) -> Iterator[bytes]:
    """Yield a tar stream in the form that the script's `unpack` reads."""
    for piece in tar:
        yield b"%d\n" % len(piece)
        yield piece
    yield b"0\n"
