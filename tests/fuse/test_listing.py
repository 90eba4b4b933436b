"""Listings that the kernel has in part from its cache."""

import os
from collections.abc import Callable
from pathlib import Path

from tests.mounted import Mounted, needs_namespaces


def test_a_listing_goes_on_when_the_directory_changes_in_the_middle(make_mount: Callable[..., Mounted], tmp_path: Path) -> None:
    """Its first part comes from the cache, of another open; the change empties that, and the rest is asked for from there."""
    needs_namespaces()
    many = tmp_path / "lower" / "many"
    many.mkdir(parents=True)
    names = {f"file-{number}" for number in range(1500)}
    for name in names:
        (many / name).touch()
    mounted = make_mount(many.parent)
    mounted.cli("branch create", "fix")
    seen = mounted.subtree("fix") / "many"
    for _ in range(2):
        os.listdir(seen)
    with os.scandir(seen) as listing:
        found = [next(listing).name]
        mounted.run("fix", "touch", "many/new")
        found += [entry.name for entry in listing]
    assert sorted(set(found) - {"new"}) == sorted(names)
    assert len(set(found)) == len(found)
