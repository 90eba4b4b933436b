"""What is shown of commands that were run in a branch: the last run of tests counts, and a shell around a script is left out."""

import pytest

from agentfs_client import wire
from agentfsd.cli.output import run_lines
from agentfsd.review.branch_runs import inner_command, is_test, telling
from tests.mounted import Mounted


@pytest.mark.parametrize(
    ("command", "shown"),
    [
        ("sh -c 'make test && echo ok'", "make test && echo ok"),
        ("/bin/bash -lc 'cd x; ls'", "cd x; ls"), ("bash -e -c ls", "ls"),
        ("sh -c 'echo $1' name one", "sh -c 'echo $1' name one"), ("sh script.sh -c x", "sh script.sh -c x"),
        ("make test", "make test"),
        ("sh -c 'open", "sh -c 'open"), ("python -c 'print(1)'", "python -c 'print(1)'"),
    ],
)  # fmt: skip
def test_a_shell_around_a_script_is_left_out(command: str, shown: str) -> None:
    assert inner_command(command) == shown
    assert run_lines.shortened(command) == shown


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("make test", True), ("pytest -q", True), ("npm run test:unit", True), ("sh -c 'cd x && cargo test'", True),
        ("make check", True),
        ("./scripts/test", True), ("python -m pytest", True), ("python tests/run.py", False), ("pwd", False),
        ("cat latest", False),
        ("git checkout x", False), ("my-agent 'fix it'", False),
    ],
)  # fmt: skip
def test_runs_of_tests_are_known_by_their_words(command: str, expected: bool) -> None:
    assert is_test(command) is expected


def _run(number: int, branch: str, command: str) -> wire.RecordedRun:
    return wire.RecordedRun(
        id=number, branch=branch, branch_id=branch, command=command, exit_code=0, started_ns=0, ended_ns=number, changed=0
    )  # fmt: skip


def test_the_last_run_of_tests_counts_and_else_the_last_run() -> None:
    runs = [_run(1, "a", "make test"), _run(2, "a", "pytest"), _run(3, "a", "pwd"), _run(4, "b", "make"), _run(5, "b", "pwd")]
    assert {branch: run.id for branch, run in telling(runs).items()} == {"a": 2, "b": 5}


def test_what_was_run_after_the_tests_does_not_hide_them(mounted: Mounted) -> None:
    mounted.run("one", "sh", "-c", ": make test; exit 3", new=True, check=False)
    mounted.run("one", "pwd")
    (mounted.lower / "agentfsd").write_text("#!/bin/sh\n")
    (mounted.lower / "agentfsd").chmod(0o755)
    mounted.run("one", "./agentfsd", "notes", "answer")
    assert "exit 3" in mounted.cli("compare", "one", "main").stdout
    assert "$ ./agentfsd" not in mounted.cli("log", "one").stdout
