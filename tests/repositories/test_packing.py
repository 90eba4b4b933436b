"""One pack of many loose objects: git reads it, and merges bring it instead of hundreds of files."""

import zlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from agentfsd.repositories import packing
from tests.repositories.agents import Agents, commit, git, start


def loose(place: Path) -> dict[bytes, bytes]:
    """The loose objects of a repository."""
    objects = place / ".git" / "objects"
    found = {str(path.relative_to(objects)).encode(): path.read_bytes() for path in objects.glob("??/*")}
    assert all(packing.is_loose(name) for name in found)
    return found


@pytest.mark.parametrize("form", ["sha1", "sha256"])
def test_git_reads_the_pack(tmp_path: Path, form: str) -> None:
    place = tmp_path / "made"
    sizes = [0, 1, 15, 16, 2047, 2048, 70000]
    start(place, {f"{size}/file": "x" * size for size in sizes}, f"--object-format={form}")
    git(place, "tag", "-a", "-m", "a tag", "v1")
    contents = loose(place)
    made = packing.pack(contents, form)
    assert made is not None
    assert made.objects == contents.keys()
    other = tmp_path / "other"
    git(tmp_path, "init", "-q", f"--object-format={form}", "other")
    for suffix, data in (("pack", made.data), ("idx", made.directory)):
        (other / ".git" / "objects" / f"{made.name.decode()}.{suffix}").write_bytes(data)
    (other / ".git" / "refs" / "tags" / "v1").write_text(git(place, "rev-parse", "refs/tags/v1") + "\n")
    assert git(other, "fsck", "--strict", "--full") == ""
    assert git(other, "rev-list", "--objects", "v1") == git(place, "rev-list", "--objects", "v1")
    assert [len(git(other, "cat-file", "blob", f"v1:{size}/file")) for size in sizes] == sizes


def test_what_is_no_object_stays_out(tmp_path: Path) -> None:
    start(tmp_path / "made", {"a": "a\n"})
    contents = loose(tmp_path / "made")
    name, data = next(iter(contents.items()))
    big = b"blob %d\0" % (packing.OBJECT_BYTES + 1) + b"x" * (packing.OBJECT_BYTES + 1)
    wrong = {
        b"pack/pack-1.pack": b"PACK", b"00/" + b"0" * 38: data, b"11/" + b"1" * 38: b"no zlib",
        b"22/" + b"2" * 38: zlib.compress(big), b"33/" + b"3" * 38: data[:-4], name.upper() + b"x": data,
    }  # fmt: skip
    assert packing.pack(wrong, "sha1") is None
    made = packing.pack({**wrong, name: data}, "sha1")
    assert made is not None
    assert made.objects == {name}


@pytest.fixture
def agents(tmp_path: Path) -> Iterator[Agents]:
    made = Agents(tmp_path)
    start(made.lower, {"a": "a\n", "b": "b\n"})
    yield made
    made.close()


def test_many_objects_come_as_one_pack_and_those_of_a_branch_left_out_do_not(agents: Agents) -> None:
    names = ["one", "two", "three", "four"]
    agents.branch("all", *names)
    agents.commit("all", {"a": "all\n"}, "all's")
    for name in names:
        files: dict[str, str | None] = {f"{name}/{number}": f"{name} {number}\n" for number in range(100)}
        agents.commit(name, files | ({"a": "three\n"} if name == "three" else {}), f"{name}'s")
    merged = agents.merge(*names, into="all", leave_conflicting=True)
    assert (merged.merged, merged.left) == (["one", "two", "four"], ["three"])
    place = agents.work("all")
    git(place, "fsck", "--strict", "--no-dangling")
    assert git(place, "status", "--porcelain") == ""
    objects = git(place, "count-objects", "-v").splitlines()
    assert "packs: 3" in objects
    left = git(agents.work("three"), "rev-parse", "HEAD:three/7")
    assert left not in git(place, "cat-file", "--batch-all-objects", "--batch-check")
    commit(place, {"a": "again\n"}, "git goes on")
    git(place, "gc", "-q", "--prune=now")
    git(place, "fsck", "--strict")
