"""Snapshots of a sandbox: a copy of its workspace on this machine, and for a whole container an image or a checkpoint."""

import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import UUID

from agentfs_files.backends.container_attach import api_of, reason
from agentfs_files.backends.podman_images import BACKEND, PodmanSnapshotStrategy, commit
from agentfs_files.filesystem.filesystem_errors import SnapshotCreationError, SnapshotIncompatibleError, SnapshotRestoreError
from agentfs_files.filesystem.records import FilesystemDiff, FilesystemSnapshot, SnapshotStrategy
from agentfs_files.snapshots.directory_snapshots import DirectorySnapshots

if TYPE_CHECKING:
    from podman import PodmanClient
    from podman.domain.containers import Container

_PIECE = 1 << 20  # bytes
_OVERLAY = "overlay_"
_COMMIT, _CHECKPOINT = PodmanSnapshotStrategy.CONTAINER_COMMIT, PodmanSnapshotStrategy.CONTAINER_CHECKPOINT
_KINDS = {
    PodmanSnapshotStrategy.OVERLAY_REFLINK: (SnapshotStrategy.REFLINK,),
    PodmanSnapshotStrategy.OVERLAY_COPY: (SnapshotStrategy.COPY,),
}
_ANY = (SnapshotStrategy.REFLINK, SnapshotStrategy.COPY)


class SandboxSnapshots:
    """Snapshots of one sandbox.

    ``commit_ref`` is the directory of the workspace's copy. For a whole container, its image or checkpoint and the way of copying
    come first: ``IMAGE@copy:DIRECTORY``.
    """

    def __init__(self, workspace: Path, place: Path) -> None:
        self._workspace, self._place = workspace, place
        self._copies = {kind: DirectorySnapshots(workspace, strategy=kind, storage=place / kind.value) for kind in _ANY}

    def take(
        self, strategy: PodmanSnapshotStrategy | None, tag: str | None, parent: UUID | None, container: "Container | None"
    ) -> FilesystemSnapshot:
        """Take a snapshot. *container* is running; strategies for a whole container need it. Raises SnapshotCreationError."""
        copy = self._copy(_ANY if strategy is None else _KINDS.get(strategy, _ANY), tag, parent)
        if strategy not in (_COMMIT, _CHECKPOINT) or container is None:
            return replace(copy, backend=BACKEND, strategy=_OVERLAY + copy.strategy)
        try:
            whole = commit(container, copy.snapshot_id) if strategy is _COMMIT else self._checkpoint(container, copy.snapshot_id)
        except OSError as exc:
            self._copies[SnapshotStrategy(copy.strategy)].delete(copy)
            what = "committed" if strategy is _COMMIT else "checkpointed"
            raise SnapshotCreationError(f"the container {container.name} was not {what}: {reason(exc)}") from exc
        ref = f"{whole}@{copy.strategy}:{copy.commit_ref}"
        return replace(copy, commit_ref=ref, backend=BACKEND, strategy=strategy.value)

    def _copy(self, kinds: tuple[SnapshotStrategy, ...], tag: str | None, parent: UUID | None) -> FilesystemSnapshot:
        """Copy the workspace with the first of *kinds* that works."""
        for kind in kinds[:-1]:
            try:
                return self._copies[kind].take(tag, parent)
            except SnapshotCreationError:
                continue
        return self._copies[kinds[-1]].take(tag, parent)

    def _checkpoint(self, container: "Container", snapshot_id: UUID) -> str:
        """Write an archive of the container's processes and files, for which podman needs a runtime with CRIU. The container
        keeps running.
        """
        self._place.mkdir(parents=True, exist_ok=True)
        path = self._place / f"checkpoint-{snapshot_id}"
        asked = {"export": "true", "leaveRunning": "true"}
        response = api_of(container).post(f"/containers/{container.id}/checkpoint", params=asked, stream=True)
        try:
            response.raise_for_status()
            with path.open("wb") as file:
                for piece in response.iter_content(_PIECE):
                    file.write(piece)
        except BaseException:
            path.unlink(missing_ok=True)
            raise
        finally:
            response.close()
        return str(path)

    def restore(self, snapshot: FilesystemSnapshot) -> str:
        """Restore the workspace. Return the image or archive of the container; "" for a snapshot of the workspace alone."""
        whole, copy = self._parts(snapshot)
        self._copies[SnapshotStrategy(copy.strategy)].restore(copy)
        return whole

    def resume(self, podman: "PodmanClient", archive: str) -> "Container":
        """Return the running container of a checkpoint. Raises SnapshotRestoreError."""
        try:
            with open(archive, "rb") as file:
                response = podman.api.post("/containers/checkpoint/restore", params={"import": "true"}, data=file)
            response.raise_for_status()
            return podman.containers.get(response.json()["Id"])
        except OSError as exc:
            raise SnapshotRestoreError(f"the checkpoint {archive} was not restored: {reason(exc)}") from exc

    def diff(self, base: FilesystemSnapshot, target: FilesystemSnapshot | None) -> FilesystemDiff:
        """Compare states of the workspace."""
        _, before = self._parts(base)
        copies = self._copies[SnapshotStrategy(before.strategy)]
        return copies.diff(before, None if target is None else self._parts(target)[1])

    def delete(self, podman: Any, snapshot: FilesystemSnapshot) -> None:
        """Delete a snapshot. Raises SnapshotNotFoundError if the workspace's copy no longer exists."""
        whole, copy = self._parts(snapshot)
        self._copies[SnapshotStrategy(copy.strategy)].delete(copy)
        if snapshot.strategy == _COMMIT.value:
            remove_image(podman, whole)
        elif whole:
            Path(whole).unlink(missing_ok=True)

    def _parts(self, snapshot: FilesystemSnapshot) -> tuple[str, FilesystemSnapshot]:
        """Return the container's image or archive, and the snapshot of the workspace."""
        if snapshot.backend != BACKEND or snapshot.root_path != os.path.realpath(self._workspace):
            raise SnapshotIncompatibleError(f"{snapshot.snapshot_id} is not a snapshot of the sandbox in {self._workspace}")
        whole, ref, kind = "", snapshot.commit_ref, snapshot.strategy.removeprefix(_OVERLAY)
        if snapshot.strategy in (_COMMIT.value, _CHECKPOINT.value):
            whole, _, rest = snapshot.commit_ref.partition("@")
            kind, _, ref = rest.partition(":")
        return whole, replace(snapshot, commit_ref=ref, backend="host", strategy=kind)


def remove_image(podman: Any, image: str) -> None:
    """Remove an image. Does nothing if it does not exist."""
    from podman.errors import NotFound

    try:
        podman.images.remove(image, force=True)
    except NotFound:
        pass
