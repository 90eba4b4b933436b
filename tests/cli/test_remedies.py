"""What mends something is a command for the machine at hand; and who lacks the daemon's packages is told so in a sentence."""

import subprocess
import sys
from pathlib import Path

import pytest

from agentfsd.cli.checkup import capabilities, privileges, remedies


@pytest.mark.parametrize(
    ("os_release", "command"),
    [
        ("ID=debian\n", "apt-get install -y fuse3"),
        ('ID=linuxmint\nID_LIKE="ubuntu debian"\n', "apt-get install -y fuse3"),
        ("ID=fedora\n", "dnf install -y fuse3"),
        ('ID="rocky"\nID_LIKE="rhel centos fedora"\n', "dnf install -y fuse3"),
        ("ID=manjaro\nID_LIKE=arch\n", "pacman -S --needed --noconfirm fuse3"),
        ("ID=plan9\n", "install what Debian calls fuse3"),
    ],
)
def test_command_is_the_distributions(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, os_release: str, command: str) -> None:
    (tmp_path / "os-release").write_text(os_release)
    monkeypatch.setattr(remedies, "OS_RELEASE", str(tmp_path / "os-release"))
    assert remedies.install("fusermount3").removeprefix("sudo ") == command


def test_program_that_is_not_setuid_is_named_with_what_mends_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    program = tmp_path / "fusermount3"
    program.write_text("#!/bin/sh\necho fusermount3 version: 3.14.0\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    finding = next(found for found in capabilities.survey(str(tmp_path)) if found.name == "fusermount3")
    assert finding.detail.startswith(f"{program} 3.14.0, not setuid root")
    assert finding.found == privileges.has_sys_admin()
    assert finding.found or finding.remedy.removeprefix("sudo ") == f"chmod u+s {program}"


def test_client_alone_says_what_the_commands_need() -> None:
    code = "import sys; sys.modules['click'] = None; from agentfsd.cli.entry import main; main()"
    done = subprocess.run([sys.executable, "-c", code, "mount", "/a", "/b"], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.startswith("agentfsd: the commands need the package click\n  hint: ")
    assert "pip install 'agentfsd[daemon]'" in done.stderr
