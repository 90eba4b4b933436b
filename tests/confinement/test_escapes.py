"""What a command of `run` tries to reach beyond its branch, as root and as an ordinary user.

Each of the tries is refused, or listed here with its reason.
"""

import os
from collections.abc import Iterator

import pytest

from tests.confinement import tries
from tests.confinement.world import ORDINARY, World
from tests.mounted import needs_fuse, needs_namespaces, needs_open_checkout, needs_root
from tests.rounds import is_long

_KERNEL_HAS_NO_WORD = "no namespace or domain covers it; a user or a container of its own does (ARCHITECTURE.md, Not prevented)"
_HOME_AS_IT_IS = "the profile leaves the home directory as it is: --home"
_REST_AS_IT_IS = "the profile leaves everything else as it is: --rest"
_SERVICES = "services that a build may need are left: --confine strict"
_ROOT = "root has the machine: --confine strict takes its capabilities"

_PRIORITIES = dict.fromkeys(("keep_the_daemon_on_one_processor", "give_the_daemon_no_disk_time"), _KERNEL_HAS_NO_WORD)
_ALWAYS = {
    "have_a_bystander_killed_for_memory": _KERNEL_HAS_NO_WORD,
    "read_a_key": "the home directory can be read: --home hide, or --hide ~/.ssh",
}
_WORKSPACE = (
    _ALWAYS
    | _PRIORITIES
    | {
        "slow_the_daemon": _KERNEL_HAS_NO_WORD,
        "write_into_the_home": _HOME_AS_IT_IS,
        "remove_from_the_home": _HOME_AS_IT_IS,
        "write_beside_the_home": _REST_AS_IT_IS,
        "write_into_the_shared_tmp": _REST_AS_IT_IS,
        "talk_to_a_service": _SERVICES,
        "talk_to_an_abstract_service": _SERVICES,
    }
)
_OF_ROOT = (
    "make_the_root_writable", "mount_the_disk", "make_a_node_of_the_disk", "open_the_disk", "open_memory",
    "read_the_environment_of_a_bystander", "change_what_the_kernel_runs", "write_into_sysfs", "make_a_control_group",
    "load_a_module", "set_the_clock", "name_the_machine", "load_a_program_into_the_kernel", "watch_all_files_of_the_disk",
)  # fmt: skip
LISTED = {
    (0, "workspace"): _WORKSPACE | dict.fromkeys(_OF_ROOT, _ROOT),
    (0, "strict"): _ALWAYS,
    (ORDINARY, "workspace"): _WORKSPACE,
    (ORDINARY, "strict"): _ALWAYS | _PRIORITIES | {"slow_the_daemon": _KERNEL_HAS_NO_WORD},
}


_SHORT = [(0, "strict"), (ORDINARY, "workspace")]  # the hardest cell, and what users have if they ask for nothing


@pytest.fixture(
    scope="module", params=LISTED if is_long() else _SHORT, ids=lambda key: f"{'root' if key[0] == 0 else 'ordinary'}-{key[1]}"
)
def escapes(request: pytest.FixtureRequest) -> Iterator[tuple[dict[str, str], dict[str, str]]]:
    """What got out in one run of all tries, and what may."""
    needs_root()
    needs_fuse()
    needs_namespaces()
    user, profile = request.param
    if user:
        needs_open_checkout()
    with World(user) as world:
        yield world.escaped(world.run_tries("--confine", profile)), LISTED[user, profile]


@pytest.mark.parametrize("name", tries.TRIES)
def test_nothing_gets_out(escapes: tuple[dict[str, str], dict[str, str]], name: str) -> None:
    got_out, listed = escapes
    assert name not in got_out or name in listed, got_out[name]


def test_nobody_outside_was_killed_or_stopped(escapes: tuple[dict[str, str], dict[str, str]]) -> None:
    got_out, _ = escapes
    assert {name for name in got_out if name not in tries.TRIES} == set()


def test_tries_are_seen_when_they_succeed() -> None:
    """Without any confinement but the branch the suite tells of escapes."""
    needs_root()
    needs_fuse()
    needs_namespaces()
    with World(0) as world:
        world.cli(
            "run",
            "--confine",
            "off",
            "-m",
            str(world.point),
            "-b",
            "mine",
            "--",
            "sh",
            "-c",
            f"echo ESCAPED it > {world.lower}/mark",
        )
        os.unlink(world.lower / "victims" / "remove_a_real_file")
        world.bystander = world.state().pid
        assert {"it", "remove_a_real_file"} <= set(world.escaped({name: {} for name in tries.TRIES}))
