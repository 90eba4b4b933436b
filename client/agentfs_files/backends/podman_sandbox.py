"""A container to work in, whose workspace is a directory of this machine. So the files exist before the container starts and
after it stops.

A section of a prompt can wrap a sandbox.
"""

import os
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self
from uuid import UUID, uuid4

from agentfs_files.backends.container_attach import reason
from agentfs_files.backends.host import HostFilesystem
from agentfs_files.backends.host_mounts import HostMount, hydrate, resolve
from agentfs_files.backends.podman import connect
from agentfs_files.backends.podman_command import CommandResult, run_command
from agentfs_files.backends.podman_images import PodmanSnapshotStrategy
from agentfs_files.backends.podman_sandbox_snapshots import SandboxSnapshots
from agentfs_files.filesystem.records import FilesystemDiff, FilesystemSnapshot

if TYPE_CHECKING:
    from podman import PodmanClient
    from podman.domain.containers import Container

_WAITING = ["sh", "-c", "trap 'exit 0' TERM INT; while :; do sleep 3600 & wait $!; done"]
_LABEL = "agentfs.sandbox"


@dataclass(slots=True, frozen=True)
class PodmanSandboxConfig:
    """The settings of a sandbox.

    ``image`` must exist locally: nothing is pulled. ``mounts`` are copied into the workspace, all from beneath
    ``allowed_host_roots``. ``overlay_root`` is a directory for workspaces and their snapshots, with a subdirectory for each
    sandbox; None means a temporary one, which close() removes. ``uri`` is the address of a service; None means the usual one.
    ``memory`` (in bytes, or such as ``512m``), ``cpus`` and ``pids`` are limits; None means no limit. ``workdir`` is the path of
    the workspace in the container. ``snapshot_strategy`` None copies the workspace by reflink if the file system supports it,
    else plainly.
    """

    image: str = "docker.io/library/python:3.12-slim"
    mounts: Sequence[HostMount] = ()
    allowed_host_roots: Sequence[os.PathLike[str] | str] = ()
    overlay_root: os.PathLike[str] | str | None = None
    uri: str | None = None
    network: bool = False
    environment: Mapping[str, str] = field(default_factory=dict)
    user: str | None = None
    memory: str | int | None = None
    cpus: float | None = None
    pids: int | None = None
    workdir: str = "/workspace"
    command_timeout_s: float = 120.0
    max_output_bytes: int = 32_768
    snapshot_strategy: PodmanSnapshotStrategy | None = None


class PodmanSandbox:
    """A container with a workspace.

    ``filesystem`` works at once; the first command starts the container. With the ``sandbox_id`` of an earlier sandbox, and an
    ``overlay_root``, it continues with that workspace.

    Raises:
        RuntimeError: podman cannot be reached, or no container can be started.
    """

    def __init__(
        self,
        config: PodmanSandboxConfig | None = None,
        *,
        sandbox_id: UUID | str | None = None,
        client: "PodmanClient | None" = None,
    ) -> None:
        self.config = config or PodmanSandboxConfig()
        mounts = [resolve(mount, self.config.allowed_host_roots) for mount in self.config.mounts]
        self.sandbox_id = str(sandbox_id or uuid4())
        self._temporary = tempfile.mkdtemp(prefix="agentfs-sandbox-") if self.config.overlay_root is None else None
        self._base = Path(self._temporary or os.fspath(self.config.overlay_root or "")).absolute() / self.sandbox_id
        self.workspace = self._base / "workspace"
        is_new = not self.workspace.exists()
        self.workspace.mkdir(parents=True, exist_ok=True)
        self.filesystem = HostFilesystem(self.workspace, mount_point=self.config.workdir)
        if is_new:
            hydrate(self.filesystem, mounts)
        self._client: Any = client
        self._own_client = client is None
        self._container: Container | None = None
        self._image = self.config.image
        self._snapshots = SandboxSnapshots(self.workspace, self._base / "snapshots")
        self._taken: list[FilesystemSnapshot] = []  # snapshots that include an image
        self._current: UUID | None = None

    # -- the container

    @property
    def container(self) -> "Container | None":
        """The container; None before the first start."""
        return self._container

    @property
    def is_running(self) -> bool:
        if self._container is None:
            return False
        try:
            return bool(self._container.inspect()["State"]["Running"])
        except OSError:
            return False

    def start(self) -> "Container":
        """Create the container, or start it again. Does nothing if it runs."""
        if self.is_running and self._container is not None:
            return self._container
        try:
            if self._container is None:
                self._container = self._create()
            self._container.start()
        except OSError as exc:
            raise RuntimeError(f"no container of {self._image} could be started: {reason(exc)}") from exc
        return self._container

    def _create(self) -> "Container":
        config = self.config
        limits: dict[str, Any] = {"mem_limit": config.memory, "pids_limit": config.pids}
        if config.cpus is not None:
            limits |= {"cpu_period": 100_000, "cpu_quota": int(config.cpus * 100_000)}
        if not config.network:
            limits["network_mode"] = "none"
        made: Container = self._podman.containers.create(
            self._image,
            entrypoint=_WAITING,  # replaces the image's own entry point
            volumes={str(self.workspace): {"bind": config.workdir, "mode": "rw"}},
            working_dir=config.workdir,
            environment=dict(config.environment),
            user=config.user,
            labels={_LABEL: self.sandbox_id},
            stop_timeout=0,
            **{name: value for name, value in limits.items() if value is not None},
        )
        return made

    @property
    def _podman(self) -> "PodmanClient":
        if self._client is None:
            self._client = connect(self.config.uri)
        client: PodmanClient = self._client
        return client

    def execute(
        self,
        command: str,
        *,
        timeout_s: float | None = None,
        directory: str | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> CommandResult:
        """Run *command* with ``sh`` in the container, which is started if necessary. *directory* is relative to the workspace."""
        container = self.start()
        return run_command(
            container,
            command,
            directory=os.path.join(self.config.workdir, directory or ""),
            timeout_s=self.config.command_timeout_s if timeout_s is None else timeout_s,
            max_output_bytes=self.config.max_output_bytes,
            environment=environment,
            user=self.config.user,
        )

    def stop(self) -> None:
        """Stop the container. Files stay, including those outside the workspace."""
        if self._container is not None and self.is_running:
            self._container.kill(signal="KILL")
            self._container.wait()

    def close(self) -> None:
        """Remove the container, and a temporary workspace with its snapshots. Later calls do nothing."""
        self._remove_container()
        self.filesystem.close()
        if self._temporary is not None:
            for snapshot in self._taken:
                self.delete_snapshot(snapshot)
            shutil.rmtree(self._temporary, ignore_errors=True)
            self._temporary = None
        if self._own_client and self._client is not None:
            self._client.close()
            self._client = None

    def _remove_container(self) -> None:
        if self._container is not None:
            container, self._container = self._container, None
            try:
                container.remove(force=True)
            except OSError:
                pass  # the container or podman is no longer there

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

    # -- snapshots

    def snapshot(self, *, tag: str | None = None, strategy: PodmanSnapshotStrategy | None = None) -> FilesystemSnapshot:
        """Take a snapshot of the workspace.

        The strategies ``container_commit`` and ``checkpoint`` start the container and include the rest of it; ``checkpoint``
        includes its processes, too. Raises SnapshotCreationError.
        """
        chosen = strategy or self.config.snapshot_strategy
        whole = chosen in (PodmanSnapshotStrategy.CONTAINER_COMMIT, PodmanSnapshotStrategy.CONTAINER_CHECKPOINT)
        snapshot = self._snapshots.take(chosen, tag, self._current, self.start() if whole else None)
        if chosen is PodmanSnapshotStrategy.CONTAINER_COMMIT:
            self._taken.append(snapshot)
        self._current = snapshot.snapshot_id
        return snapshot

    def restore(self, snapshot: FilesystemSnapshot) -> None:
        """Restore the workspace. A snapshot of the whole container replaces the container, which ends its processes. Raises
        SnapshotRestoreError.
        """
        whole = self._snapshots.restore(snapshot)
        if whole:
            self._remove_container()
        if snapshot.strategy == PodmanSnapshotStrategy.CONTAINER_COMMIT.value:
            self._image = whole
        elif snapshot.strategy == PodmanSnapshotStrategy.CONTAINER_CHECKPOINT.value:
            self._container = self._snapshots.resume(self._podman, whole)
        self._current = snapshot.snapshot_id

    def diff(self, base: FilesystemSnapshot, target: FilesystemSnapshot | None = None) -> FilesystemDiff:
        """Compare states of the workspace. Raises SnapshotError."""
        return self._snapshots.diff(base, target)

    def delete_snapshot(self, snapshot: FilesystemSnapshot) -> None:
        """Delete a snapshot. Raises SnapshotNotFoundError."""
        self._snapshots.delete(self._podman, snapshot)
        self._taken = [taken for taken in self._taken if taken.snapshot_id != snapshot.snapshot_id]

    @property
    def current_snapshot_id(self) -> UUID | None:
        return self._current
