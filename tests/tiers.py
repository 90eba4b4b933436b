"""Which tests belong to the quick tier (``scripts/test --fast``), which files begin first, and which cases need ``--long``."""

import zlib
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

import pytest

_HERE = Path(__file__).parent

# Beginnings of the paths of tests that mount, start containers or browsers, kill processes, or take seconds.
SLOW = [
    "agents/test_hooks", "agents/test_rewind", "agents/test_real", "agents/test_noted_hooks", "agents/test_settings.py",
    "binding/test_take_over", "control/test_long_requests", "exchange/test_git.py",
    "fuse/test_branch_directories", "fuse/test_copyup_settings", "fuse/test_keeper", "fuse/test_sessions",
    "history/test_copied_not_changed", "lower/test_frozen_", "lower/test_host.py", "lower/test_writer", "overlayfs/",
    "cli/", "confinement/", "interpose/", "posix/", "repositories/", "system/", "web/", "handoff/",
    "client/branch/", "client/test_podman", "client/test_aio.py", "client/test_branch", "client/test_readme", "client/test_spec",
    "client/test_fsspec", "client/test_mcp", "client/test_session", "client/test_forwarding", "client/test_descriptors",
    "client/test_archive_branch", "client/test_typed_usage", "client/test_deepagents", "client/test_pydantic_ai",
    "client/test_upath", "client/test_streaming_memory", "client/test_filesystem_model",
    "client/test_openai_agents", "client/test_openhands", "client/test_harbor", "client/test_mini_swe_agent",
    "client/test_typescript", "client/test_import",
    "core/test_damage", "core/test_fault_points", "core/test_model", "fuse/test_native_fuzz", "fuse/test_native_model",
    "fuse/test_views", "fuse/test_lower_drift", "fuse/test_mount.py",
    "history/test_faults", "history/test_merge.py", "history/test_merge_model", "history/test_threeway_model",
    "history/test_commit_model", "history/test_target_changes", "metadata/test_damage", "metadata/test_journal",
    "terminal_review/test_review_on_mount", "terminal_review/test_conflicts_in_review",
    "terminal_review/test_review_in_terminal", "terminal_review/test_notes_in_review",
    "test_readme", "test_demo", "test_release", "test_bench", "test_docs",
]  # fmt: skip

# A test with one of these mounts, wherever it stands.
MOUNTING = {"make_mount", "mounted"}

# What takes longest, in seconds of a worker, longest first: a file is one piece for pytest-xdist.
LONGEST = [
    "test_readme.py", "confinement/", "system/test_systemd.py", "system/test_suites.py", "web/test_board.py",
    "system/test_run_overlay.py", "system/test_service.py", "cli/test_run_questions.py", "terminal_review/", "test_bench.py",
    "test_demo.py", "cli/test_merged_again.py", "system/survival/", "web/", "cli/test_running.py", "system/", "posix/", "cli/",
    "agents/test_hooks", "client/test_openai_agents", "history/test_merge.py",
    "fuse/test_lower_drift", "fuse/test_native_model", "fuse/test_views", "repositories/", "core/test_fault_points.py",
]  # fmt: skip


# Long files whose tests share nothing: how many pieces they are.
IN_PARTS = {"test_readme.py": 3, "terminal_review/test_review_on_mount.py": 2}


def _place(path: Path) -> str:
    return str(path.relative_to(_HERE)) if path.is_relative_to(_HERE) else ""


def _is_slow_place(place: str) -> bool:
    return any(place.startswith(slow) for slow in SLOW)


def is_slow_file(path: Path) -> bool:
    """Whether the quick tier has no test of that file."""
    return _is_slow_place(_place(path))


def is_slow(item: pytest.Item) -> bool:
    """Whether *item* is left out of the quick tier."""
    return is_slow_file(item.path) or not MOUNTING.isdisjoint(getattr(item, "fixturenames", ()))


def weight(item: pytest.Item) -> int:
    """Sort key: the files that take longest come first, then the other slow ones; the quick ones fill what is left at the end."""
    place = _place(item.path)
    after = len(LONGEST) if _is_slow_place(place) else len(LONGEST) + 1
    return next((number for number, longest in enumerate(LONGEST) if place.startswith(longest)), after)


def piece(nodeid: str) -> str:
    """Name what one worker runs in one go: a file, a part of a long one, or the tests of several that share a world.

    Args:
        nodeid: A test, as pytest names it.
    """
    path, _, test = nodeid.partition("::")
    place = path.removeprefix(f"{_HERE.name}/")
    if place in IN_PARTS:
        return f"{path} {zlib.crc32(test.encode()) % IN_PARTS[place]}"
    if place.startswith("confinement/") and (world := next((user for user in ("root", "ordinary") if f"[{user}" in test), "")):
        return f"confinement, {world}"
    return path


def left_out(items: Iterable[pytest.Item], seed: int) -> set[pytest.Item]:
    """Return the cases of tests marked ``sample(N)`` that only run with ``--long``.

    N cases of such a test stay, spread evenly over all. Which they are depends on the test's name and on *seed*: of the tests
    that can run as root and as an ordinary user, some run as the one and some as the other.
    """
    tests: dict[str, list[pytest.Item]] = defaultdict(list)
    for item in items:
        if item.get_closest_marker("sample") is not None:
            tests[item.nodeid.partition("[")[0]].append(item)
    out: set[pytest.Item] = set()
    for name, cases in tests.items():
        marker = cases[0].get_closest_marker("sample")
        assert marker is not None
        count, first = min(int(marker.args[0]), len(cases)), zlib.crc32(name.encode()) + seed
        out |= set(cases) - {cases[(first + number * len(cases) // count) % len(cases)] for number in range(count)}
    return out
