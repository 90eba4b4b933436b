"""Harbor's trials in branches: `harbor run --env agentfs_files.integrations.harbor:AgentFSTrialEnvironment --ek mount=MOUNT`.

The mount shows the root file system of an image, unpacked (`podman export`, debootstrap). A trial is a branch of it, made in
milliseconds, and its commands run there with the branch as their root directory. Needs root.
"""

import asyncio
import os
import re
from collections.abc import Iterable
from pathlib import Path, PurePosixPath
from typing import Any

from agentfs_client.extras import needed_for
from agentfs_files.backends.branch import BranchFilesystem
from agentfs_files.integrations.branch_workspace import BranchWorkspace

with needed_for("this environment needs", "harbor"):
    from harbor.environments.base import BaseEnvironment, ExecResult
    from harbor.environments.capabilities import EnvironmentCapabilities

_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_ENTER = """
root=$1 user=$2; shift 2
for place in dev sys; do mount --rbind "/$place" "$root/$place" || exit 125; done
mount -t proc proc "$root/proc" || exit 125
[ ! -f "$root/etc/resolv.conf" ] || mount --bind /etc/resolv.conf "$root/etc/resolv.conf"
exec chroot ${user:+--userspec="$user"} "$root" env -i "$@"
"""  # in the private mount namespace of `agentfsd run`
_SHELL = 'cd -- "$1" || exit; if command -v bash >/dev/null; then exec bash -c "$2"; else exec sh -c "$2"; fi'
_ROOT = ("None", "root", "0")  # of an image that may have no /etc/passwd
_NOT_IN_A_NAME = re.compile(r"[^A-Za-z0-9._-]+")


class AgentFSTrialEnvironment(BaseEnvironment):
    """A branch of an image's root file system. Dockerfiles and compose files are not built: the mount shows what they would make.

    Args:
        mount: The mount point; None for AGENTFS_MOUNT, or the only mount.
        source: The ref that a trial's branch is created from; None means the present ``main``. ``{name}`` stands for the name of
            the environment, so that one mount can hold the images of many tasks as branches or snapshots.
        keep_branch: Keep the branches of trials, to compare or commit them. Otherwise the end of a trial discards its branch,
            and `agentfsd undo` brings it back.
        **harbor: What Harbor gives to every environment.
    """

    def __init__(
        self,
        *args: Any,
        mount: str | os.PathLike[str] | None = None,
        source: str | None = None,
        keep_branch: bool = False,
        **harbor: Any,
    ) -> None:
        self._mount, self._source, self._keeps = mount, source, keep_branch
        self._started: BranchWorkspace | None = None
        super().__init__(*args, **harbor)

    @staticmethod
    def type() -> str:
        """The environment type."""
        return "agentfsd"

    @property
    def capabilities(self) -> EnvironmentCapabilities:
        """Trials can do without a network."""
        return EnvironmentCapabilities(disable_internet=True)

    def _validate_definition(self) -> None:
        """Accept every task: what its commands need is in the image."""

    @property
    def branch(self) -> str:
        """Name of the trial's branch."""
        return _NOT_IN_A_NAME.sub("-", self.session_id).strip("-.")[:128]

    @property
    def workspace(self) -> BranchWorkspace:
        """The branch. RuntimeError before start()."""
        if self._started is None:
            raise RuntimeError(f"the environment {self.session_id} has not been started")
        return self._started

    # -- the life of a trial

    async def start(self, force_build: bool) -> None:
        """Create the branch.

        Raises:
            AgentFSError: There is no such mount or source, or the daemon cannot be reached.
            PermissionError: This process is not root.
        """
        if os.geteuid() != 0:
            raise PermissionError(
                "trials in branches of an image need root: others may not change the root directory of a command"
            )
        source = None if self._source is None else self._source.replace("{name}", self.environment_name)
        options = ["--net", "none"] if self._network_disabled else []
        self._started = await asyncio.to_thread(
            BranchWorkspace.open, self._mount, branch=self.branch, source=source, options=options
        )
        try:
            await asyncio.to_thread(_make_directories, self._started, ("dev", "sys", "proc", "tmp", self._directory(None)))
            await self.ensure_dirs(self._mount_targets(writable_only=True))
            await self._upload_environment_dir_after_start()
        except BaseException:
            await self.stop(delete=True)
            raise

    async def stop(self, delete: bool) -> None:
        """Kill what the trial left running, and discard its branch with *delete*."""
        workspace, self._started = self._started, None
        if workspace is not None:
            await asyncio.to_thread(_end, workspace, discard=delete and not self._keeps)

    # -- commands

    async def exec(
        self,
        command: str,
        cwd: str | None = None,
        env: dict[str, str] | None = None,
        timeout_sec: int | None = None,
        user: str | int | None = None,
    ) -> ExecResult:
        """Run a command line with bash, or with sh where the image has no bash.

        Args:
            command: The command line.
            cwd: The working directory; None means the task's.
            env: Additional environment variables. Nothing of this process's environment is passed on.
            timeout_sec: Seconds until the command is killed, with the return code 124; None for no limit.
            user: Name or number of the user; None means the default user, or root.
        """
        who = self._resolve_user(user)
        variables = {"PATH": _PATH, "HOME": "/root", "TERM": "dumb", **(self._merge_env(env) or {})}
        entering = ["sh", "-c", _ENTER, "sh", self.workspace.root, "" if str(who) in _ROOT else str(who)]
        inside = ["sh", "-c", _SHELL, "sh", self._directory(cwd), command]
        words = [*entering, *(f"{name}={value}" for name, value in variables.items()), *inside]
        done = await self.workspace.run_async(words, timeout_s=timeout_sec)
        output, errors = (part.decode("utf-8", "replace") for part in (done.output, done.errors))
        if done.has_timed_out:
            errors += f"\n[killed after {timeout_sec} seconds]"
        return ExecResult(stdout=output, stderr=errors, return_code=done.exit_code)

    def _directory(self, cwd: str | None) -> str:
        return cwd or self.task_env_config.workdir or "/"

    # -- files, whose paths begin at the root directory of the image

    async def upload_file(self, source_path: Path | str, target_path: str) -> None:
        """Copy a file into the trial."""
        await self._upload([(Path(source_path), target_path)])

    async def upload_dir(self, source_dir: Path | str, target_dir: str) -> None:
        """Copy what is in a directory into a directory of the trial."""
        base = Path(source_dir)
        await asyncio.to_thread(_make_directories, self.workspace, (target_dir,))
        files = [found for found in sorted(base.rglob("*")) if found.is_file()]
        await self._upload([(found, str(PurePosixPath(target_dir, found.relative_to(base)))) for found in files])

    async def _upload(self, files: list[tuple[Path, str]]) -> None:
        def copy() -> None:
            for source, target in files:
                self.workspace.upload(source, _inside(target))

        await asyncio.to_thread(copy)

    async def download_file(self, source_path: str, target_path: Path | str) -> None:
        """Copy a file of the trial to this machine."""
        await asyncio.to_thread(self.workspace.download, _inside(source_path), Path(target_path))

    async def download_dir(self, source_dir: str, target_dir: Path | str) -> None:
        """Copy the files of a directory of the trial to this machine."""
        base = _inside(source_dir)

        def copy() -> None:
            Path(target_dir).mkdir(parents=True, exist_ok=True)
            for match in self.workspace.do(lambda filesystem: filesystem.glob("**", path=base)):
                self.workspace.download(match.path, Path(target_dir, PurePosixPath(match.path).relative_to(base)))

        await asyncio.to_thread(copy)


def _inside(path: str) -> str:
    """Return an absolute path of the image as a path from the root of the branch."""
    return path.strip("/")


def _make_directories(workspace: BranchWorkspace, paths: Iterable[str]) -> None:
    def make(filesystem: BranchFilesystem) -> None:
        for path in paths:
            if _inside(path):
                filesystem.mkdir(_inside(path))

    workspace.do(make)


def _end(workspace: BranchWorkspace, *, discard: bool) -> None:
    if discard:
        workspace.discard()
    else:
        workspace.end_commands()
    workspace.close()
