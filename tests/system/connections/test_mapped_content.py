"""Content that is changed in a mapping on one connection, and otherwise on another."""

import os
from collections.abc import Callable

import pytest

from tests.system.connections.connected import Places
from tests.system.stepper import Stepper

TEXT = "0123456789" * 900


def shrink(who: Stepper) -> str:
    who("truncate", "mapped", 100)
    return TEXT[:3] + "A" + TEXT[4:100]


def empty(who: Stepper) -> str:
    who("open", "emptied", "mapped", os.O_WRONLY | os.O_TRUNC)
    who("close", "emptied")
    return ""


def punch(who: Stepper) -> str:
    who("open", "punched", "mapped", os.O_WRONLY)
    who("fallocate", "punched", 3, 0, 4096)  # FALLOC_FL_KEEP_SIZE | FALLOC_FL_PUNCH_HOLE
    who("close", "punched")
    return "\0" * 4096 + TEXT[4096:5000] + "B" + TEXT[5001:]


def copy_into(who: Stepper) -> str:
    who("write", "source", "s" * 4096)
    who("open", "source", "source", os.O_RDONLY)
    who("open", "target", "mapped", os.O_WRONLY)
    assert who("copy_range", "source", 0, "target", 0, 4096) == 4096
    who("close", "source")
    who("close", "target")
    return "s" * 4096 + TEXT[4096:5000] + "B" + TEXT[5001:]


def write_over(who: Stepper) -> str:
    who("open", "written", "mapped", os.O_WRONLY)
    who("pwrite", "written", "W" * 100, 100)
    who("close", "written")
    return TEXT[:3] + "A" + TEXT[4:100] + "W" * 100 + TEXT[200:5000] + "B" + TEXT[5001:]


@pytest.mark.sample(5)
@pytest.mark.parametrize("change", [shrink, empty, punch, copy_into, write_over])
@pytest.mark.parametrize(("one", "two"), [("zero-message", "pid"), ("pid", "zero-message"), ("zero-message", "subtree")])
def test_what_a_mapping_has_changed_comes_before_what_the_other_side_does(
    places: Places, one: str, two: str, change: Callable[[Stepper], str]
) -> None:
    mapper, other = places.start(one), places.start(two)
    mapper("write", "mapped", TEXT)
    mapper("open", "mapped", "mapped", os.O_RDWR)
    mapper("map", "mapped", True)
    assert other("read", "mapped") == TEXT
    mapper("poke", "mapped", "A", 3)
    mapper("poke", "mapped", "B", 5000)
    wanted = change(other)
    assert mapper("read", "mapped") == other("read", "mapped") == wanted
    mapper("close", "mapped")
    assert (places.tree / "mapped").read_text() == wanted


@pytest.mark.parametrize(("one", "two"), [("zero-message", "pid"), ("pid", "zero-message")])
def test_copy_has_what_a_mapping_on_the_other_side_has_changed(places: Places, one: str, two: str) -> None:
    mapper, other = places.start(one), places.start(two)
    mapper("write", "mapped", TEXT)
    mapper("open", "mapped", "mapped", os.O_RDWR)
    mapper("map", "mapped", True)
    mapper("poke", "mapped", "A", 3)
    other("write", "copy", "")
    other("open", "from", "mapped", os.O_RDONLY)
    other("open", "to", "copy", os.O_WRONLY)
    assert other("copy_range", "from", 0, "to", 0, len(TEXT)) == len(TEXT)
    assert other("read", "copy") == TEXT[:3] + "A" + TEXT[4:]
