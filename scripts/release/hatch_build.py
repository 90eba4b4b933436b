"""What a wheel holds beside the packages: the preloaded library, man pages and completion scripts.

Each part is left out, with a warning, where it cannot be made; the package works without any of them. With AGENTFSD_COMPLETE set,
as for a release, the build fails instead.
"""

import os
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

LIBRARY = "libagentfs-interpose.so.1"


class WheelHook(BuildHookInterface):  # type: ignore[type-arg]
    def dependencies(self) -> list[str]:
        return ["click>=8.1", "msgspec>=0.19", "lazy-loader>=0.4"]  # what importing the commands takes, for their man pages

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if version == "editable":  # scripts/install puts the library beside the sources
            return
        self._directory = tempfile.TemporaryDirectory()
        made = Path(self._directory.name)
        if self._run("no man pages and no completion", [sys.executable, "-m", "release.share", made / "share"]):
            build_data["shared_data"][str(made / "share")] = "share"
        if self._run("no `agentfsd run --interpose`", [Path(self.root, "client/interpose/build"), made / LIBRARY]):
            build_data["pure_python"] = False
            build_data["tag"] = "py3-none-" + sysconfig.get_platform().replace("-", "_").replace(".", "_")
            build_data["force_include"][str(made / LIBRARY)] = f"agentfs_client/{LIBRARY}"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        if hasattr(self, "_directory"):
            self._directory.cleanup()

    def _run(self, loss: str, command: list[str | Path]) -> bool:
        paths = [
            self.root,
            os.path.join(self.root, "client"),
            os.path.join(self.root, "scripts"),
            *filter(None, [os.environ.get("PYTHONPATH")]),
        ]
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(paths), "PYTHONDONTWRITEBYTECODE": "1"}
        try:
            subprocess.run(command, check=True, capture_output=True, text=True, cwd=self.root, env=environment)
        except (OSError, subprocess.CalledProcessError) as exc:
            reason = (getattr(exc, "stderr", "") or str(exc)).strip().splitlines()[-1]
            if os.environ.get("AGENTFSD_COMPLETE"):
                raise SystemExit(f"there would be {loss}: {reason}") from None
            self.app.display_warning(f"there will be {loss}: {reason}")
            return False
        return True
