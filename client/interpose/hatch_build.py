"""Puts the interposition library into the wheel where there is a C compiler; without one the wheel is pure Python and says so."""

import subprocess
import sysconfig
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

NAME = "libagentfs-interpose.so.1"


class InterposeHook(BuildHookInterface):  # type: ignore[type-arg]
    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if version == "editable":  # scripts/install puts it beside the sources
            return
        self._directory = tempfile.TemporaryDirectory()
        made = Path(self._directory.name, NAME)
        try:
            subprocess.run([Path(self.root, "client/interpose/build"), made], check=True, capture_output=True, text=True)
        except (OSError, subprocess.CalledProcessError) as exc:
            reason = (getattr(exc, "stderr", "") or str(exc)).strip().splitlines()[-1]
            self.app.display_warning(f"there will be no `agentfsd run --interpose`: its library was not compiled: {reason}")
            return
        build_data["pure_python"] = False
        build_data["tag"] = "py3-none-" + sysconfig.get_platform().replace("-", "_").replace(".", "_")
        build_data["force_include"][str(made)] = f"agentfs_client/{NAME}"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        if hasattr(self, "_directory"):
            self._directory.cleanup()
