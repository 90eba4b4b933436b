"""A few things that programs rely on, tried with the programs themselves inside a branch."""

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.mounted import Mounted


def git(where: Path, *arguments: str) -> str:
    environment = os.environ | {"GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_SYSTEM": "/dev/null"}
    command = ["git", "-c", "user.name=a", "-c", "user.email=a@b", *arguments]
    return subprocess.run(command, cwd=where, env=environment, check=True, capture_output=True, text=True).stdout


def test_git_status_in_a_fresh_branch_reads_no_file_again(tmp_path: Path, make_mount: Callable[..., Mounted]) -> None:
    if shutil.which("strace") is None:
        pytest.skip("strace is not installed: apt-get install strace")
    lower, trace = tmp_path / "lower", tmp_path / "trace"
    lower.mkdir()
    git(lower, "init", "-q")
    for number in range(50):
        (lower / f"f{number}").write_text(f"{number}\n")
        os.utime(lower / f"f{number}", (1_600_000_000, 1_600_000_000))
    git(lower, "add", "-A")
    git(lower, "commit", "-q", "-m", "first")
    git(lower, "status")
    mounted = make_mount(lower)
    command = ["strace", "-f", "-e", "trace=open,openat", "-o", str(trace), "git", "status", "--porcelain"]
    assert mounted.run("one", *command, new=True).stdout == ""
    opened = trace.read_text()
    assert '.git/index"' in opened
    assert not [line for line in opened.splitlines() if any(f'"f{number}"' in line for number in range(50))]
