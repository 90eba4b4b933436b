"""doctor: what it says is what was tried."""

import errno
import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest

from agentfsd.cli.checkup import capabilities, obstacles
from agentfsd.cli.checkup.finding import Finding
from agentfsd.linux import home_layers, mounts, process_syscalls
from tests.mounted import Mounted, agentfsd, needs_fuse, needs_open_checkout, needs_root


def test_findings_are_complete_and_usable_here() -> None:
    needs_fuse()
    done = agentfsd("doctor", "--json")
    said = json.loads(done.stdout)
    assert said["usable"] is True
    names = [finding["name"] for finding in said["findings"]]
    assert {"kernel", "fuse device", "fusermount3", "passthrough", "private mount namespaces", "reflink"} <= set(names)
    assert all(finding["detail"] for finding in said["findings"])


def test_absence_comes_with_its_cost() -> None:
    for finding in json.loads(agentfsd("doctor", "--json", check=False).stdout)["findings"]:
        assert finding["found"] or finding["cost"], finding


def test_missing_fuse_device_fails_and_says_how_to_mend_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(mounts, "FUSE_DEVICE", str(tmp_path / "fuse"))
    finding = next(found for found in capabilities.survey(str(tmp_path)) if found.name == "fuse device")
    assert (finding.found, finding.needed) == (False, True)
    assert finding.remedy.removeprefix("sudo ").startswith(
        ("modprobe fuse", f"mknod -m 666 {tmp_path}/fuse", "start the container")
    )


def state_directory(parent: Path) -> Finding:
    return next(found for found in obstacles.survey(str(parent)) if found.name == "state directory")


def test_place_of_states_may_be_missing_and_must_have_room(tmp_path: Path) -> None:
    needs_root()
    assert state_directory(tmp_path / "to" / "come").found
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=512k", "none", tmp_path], check=True)
    try:
        finding = state_directory(tmp_path)
        assert (finding.found, finding.needed) == (False, True)
        assert f"du -xh -d 3 {tmp_path} |" in finding.remedy
    finally:
        subprocess.run(["umount", tmp_path], check=True)


def test_place_of_states_that_is_somebody_elses_is_given_back() -> None:
    needs_root()
    needs_open_checkout()
    with tempfile.TemporaryDirectory() as home:  # which others can reach
        taken = Path(home, "taken")
        taken.mkdir(mode=0o500)
        os.chmod(home, 0o755)
        program = f"from agentfsd.cli.checkup import obstacles; print(obstacles.survey('{taken}/states')[0].remedy)"
        own = Path(home, "run")
        own.mkdir()
        os.chown(own, 65534, 65534)
        environment = os.environ | {"HOME": home, "AGENTFS_RUNTIME_DIR": str(own)}
        said = subprocess.run(
            [sys.executable, "-c", program], user=65534, group=65534, env=environment, capture_output=True, text=True
        )
        assert said.stdout == f"sudo chown 65534 {taken} && chmod u+rwx {taken}\n"


def test_dead_mount_is_found_and_umount_mends_it(mounted: Mounted) -> None:
    def finding() -> dict[str, Any]:
        findings = json.loads(agentfsd("doctor", "--json").stdout)["findings"]
        return next(found for found in findings if found["name"] == "dead mounts")

    assert str(mounted.path) not in finding()["detail"]
    mounted.kill()
    assert str(mounted.path) in finding()["detail"]
    remedy = finding()["remedy"]  # names all dead mounts of this machine, so other tests' too
    mount, _, give_up = remedy.partition("; or ")
    assert mount.startswith(
        (f"mount it again (agentfsd mount LOWER {mounted.path}, ", "mount it again (agentfsd mount LOWER MOUNTPOINT, ")
    )
    assert str(mounted.path) in re.split("[ ;]", give_up)
    assert "agentfsd umount" in give_up
    agentfsd("umount", str(mounted.path))
    assert str(mounted.path) not in finding()["detail"]


@pytest.mark.parametrize("setting", [name for name, _, _ in capabilities.NAMESPACE_SETTINGS])
def test_settings_that_forbid_namespaces_are_where_the_kernel_has_settings(setting: str) -> None:
    assert Path("/proc/sys", setting.partition(".")[0]).is_dir()


def test_nothing_stays_behind(tmp_path: Path) -> None:
    capabilities.survey(str(tmp_path))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("broken", "named"),
    [("landlock_abi", "Landlock has no scopes"), ("filter_system_calls", "no filter of system calls")],
)
def test_what_cannot_be_confined_is_named(broken: str, named: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def refuse(*_: object) -> int:
        if broken == "landlock_abi":
            return 0
        raise OSError(errno.ENOSYS, "no such call")

    monkeypatch.setattr(process_syscalls, broken, refuse)
    finding = next(found for found in capabilities.survey(str(tmp_path)) if found.name == "confinement")
    assert not finding.found
    assert named in finding.detail


def test_layers_over_the_home_directory_are_tried(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    found = {found.name: found for found in capabilities.survey(str(tmp_path))}
    assert found["layers over the home directory"].found == (home_layers.why_not(str(tmp_path)) == "")
    assert os.listdir(tmp_path) == []
    monkeypatch.setattr(home_layers, "mount", lambda *_: os.stat("/nowhere"))
    found = {found.name: found for found in capabilities.survey(str(tmp_path))}
    assert not found["layers over the home directory"].found
    assert "--home ro" in found["layers over the home directory"].cost
