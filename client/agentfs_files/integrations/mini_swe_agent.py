"""A branch as an environment of mini-swe-agent.

In its configuration: ``environment_class: agentfs_files.integrations.mini_swe_agent.AgentFSEnvironment``. In Python:
``DefaultAgent(model, AgentFSEnvironment(mount="/mnt/work"), ...)``.
"""

import os
import platform
from typing import Any

from agentfs_client.extras import needed_for
from agentfs_files.integrations.branch_workspace import BranchWorkspace

with needed_for("this environment needs", "mini-swe-agent"):
    from minisweagent.exceptions import Submitted
    from minisweagent.utils.serialize import recursive_merge
    from pydantic import BaseModel

_SUBMITTED = "COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"


class AgentFSEnvironmentConfig(BaseModel):
    """How an environment's branch is made, and how its commands run.

    ``mount`` is the mount point; None for AGENTFS_MOUNT, the mount around the current directory, or the only one. ``branch`` is
    the name of the branch, which is created from ``source`` (None: the present ``main``) if it is missing; None for a new one
    with a name of its own. ``cwd`` is where commands start, absolute or relative to the mount point. ``timeout`` is in seconds.
    ``snapshots``: take a snapshot before each action, with the tag ``step-N``, N counted from 1.
    """

    mount: str | None = None
    branch: str | None = None
    source: str | None = None
    cwd: str = ""
    env: dict[str, str] = {}
    timeout: int = 30
    snapshots: bool = False


class AgentFSEnvironment:
    """Run an agent's commands in a branch. It stays when the agent has ended, to be reviewed.

    Args:
        config_class: Class of the configuration.
        **options: The fields of the configuration.

    Raises:
        AgentFSError: There is no such mount or source, or the daemon cannot be reached.
    """

    def __init__(self, *, config_class: type[AgentFSEnvironmentConfig] = AgentFSEnvironmentConfig, **options: Any) -> None:
        self.config = config_class(**options)
        self.workspace = BranchWorkspace.open(self.config.mount, branch=self.config.branch, source=self.config.source)
        self.config.mount, self.config.branch = self.workspace.root, self.workspace.branch
        self._steps = 0

    def execute(self, action: dict[str, Any], cwd: str = "", *, timeout: int | None = None) -> dict[str, Any]:
        """Run the command of an action, and return its output, exit code and what went wrong.

        Args:
            action: ``command`` is the command line, for bash.
            cwd: As in the configuration.
            timeout: Seconds until the command is killed; None for the configured number.

        Raises:
            Submitted: The first line of the output says that the task is completed.
        """
        self._steps += 1
        if self.config.snapshots:
            self.workspace.do(lambda filesystem: filesystem.snapshot(tag=f"step-{self._steps}"))
        command, seconds = ["bash", "-c", action.get("command", "")], timeout or self.config.timeout
        try:
            done = self.workspace.run(
                command, directory=cwd or self.config.cwd or None, env=self.config.env, timeout_s=seconds, joined=True
            )
        except (OSError, RuntimeError) as exc:
            return _output("", -1, exc)
        text = done.output.decode("utf-8", "replace")
        if done.has_timed_out:
            return _output(text, -1, TimeoutError(f"the command was killed after {seconds} seconds"))
        _check_submitted(text, done.exit_code)
        return _output(text, done.exit_code)

    def get_template_vars(self, **kwargs: Any) -> dict[str, Any]:
        """Return what templates of prompts may name: the configuration, the machine, the environment variables."""
        merged: dict[str, Any] = recursive_merge(self.config.model_dump(), platform.uname()._asdict(), dict(os.environ), kwargs)
        return merged

    def serialize(self) -> dict[str, Any]:
        """Return what a saved trajectory says about the environment, such as its branch."""
        kind = f"{self.__class__.__module__}.{self.__class__.__name__}"
        return {"info": {"config": {"environment": self.config.model_dump(mode="json"), "environment_type": kind}}}

    def cleanup(self) -> None:
        """Close the branch, which stays."""
        self.workspace.close()


def _output(text: str, code: int, failure: Exception | None = None) -> dict[str, Any]:
    output: dict[str, Any] = {"output": text, "returncode": code, "exception_info": ""}
    if failure is not None:
        output["exception_info"] = f"An error occurred while executing the command: {failure}"
        output["extra"] = {"exception_type": type(failure).__name__, "exception": str(failure)}
    return output


def _check_submitted(text: str, code: int) -> None:
    first, _, submission = text.lstrip().partition("\n")
    if first.strip() == _SUBMITTED and code == 0:
        extra = {"exit_status": "Submitted", "submission": submission}
        raise Submitted({"role": "exit", "content": submission, "extra": extra})
