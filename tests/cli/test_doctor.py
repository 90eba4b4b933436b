"""doctor: what it says is what was tried."""

import json
from pathlib import Path

import pytest

from agentfsd import mounts
from agentfsd.cli import capabilities
from tests.mounted import agentfsd, needs_fuse


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


def test_nothing_stays_behind(tmp_path: Path) -> None:
    capabilities.survey(str(tmp_path))
    assert list(tmp_path.iterdir()) == []
