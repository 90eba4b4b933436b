"""Calls that the object of a forwarded file would answer in its own way: each answers as without the library."""

import sys
from pathlib import Path

import pytest

from tests.interpose.answers import CALLS
from tests.interpose.conftest import Forwarding

PROGRAM = Path(__file__).with_name("answers.py")
OPENED = {  # a word of the trace: how a file was opened
    "forwarded": "open('n', 'w')",
    "small": "open('small')",
    "update": "open('small', 'r+')",
    "direct": "os.open('n', os.O_WRONLY | os.O_CREAT | os.O_DIRECT)",
    "synchronous": "os.open('n', os.O_WRONLY | os.O_CREAT | os.O_SYNC)",
    "unnamed": "os.open('.', os.O_TMPFILE | os.O_RDWR)",
    "mapped": "mmap.mmap(os.open('large', 0), 9, mmap.MAP_SHARED, mmap.PROT_READ), open('large')",
    "locked": "[file := open('small', 'r+'), fcntl.lockf(file, fcntl.LOCK_EX), open('small', 'a')]",
    "ESTALE": "(os.unlink('n'), os.open(f'/proc/self/fd/{m}', os.O_WRONLY)) if (m := os.open('n', os.O_CREAT)) else 0",
}


@pytest.fixture(scope="module")
def answers(mount_that_forwards: Forwarding) -> dict[str, tuple[str, str]]:
    """By call: what it said without the library, and with it."""
    script = f"mkdir d; cd d; cp ../large .; exec {sys.executable} {PROGRAM}"
    without = mount_that_forwards.run("answers-without", "sh", "-c", script, plain=True)
    with_it = mount_that_forwards.run("answers-with", "sh", "-c", script)
    told = [dict(line.split(": ", 1) for line in text.splitlines()) for text in (without, with_it)]
    return {name: (said, told[1][name]) for name, said in told[0].items()}


@pytest.mark.parametrize("name", [one.__name__ for one in CALLS])
def test_call_answers_as_without_the_library(answers: dict[str, tuple[str, str]], name: str) -> None:
    without, with_it = answers[name]
    assert with_it == without


@pytest.mark.parametrize("word", OPENED)
def test_trace_says_of_each_file_why_it_stays_with_the_mount(forwarding: Forwarding, word: str) -> None:
    forwarding.run(f"trace-{word}", sys.executable, "-c", f"import fcntl, mmap, os; kept = {OPENED[word]}")
    assert word in {line.split()[0] for line in forwarding.trace.read_text().splitlines()}
    assert "/usr/" not in forwarding.trace.read_text()
