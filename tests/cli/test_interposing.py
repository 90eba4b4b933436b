"""interpose get and set, and where else it is to be seen whether descriptors are forwarded."""

import json
from collections.abc import Callable

import pytest

from agentfs_client.control import ControlClient
from tests.mounted import Mounted, agentfsd


def test_settings_are_set_in_either_spelling_and_stay(mounted: Mounted) -> None:
    assert mounted.json("interpose get")["settings"]["enabled"] == "off"
    assert "`agentfsd interpose set enabled=on`" in mounted.cli("interpose get").stdout
    assert mounted.cli("interpose set", "enabled=on", "max_copy_bytes=2M").stdout == (
        "enabled is on now\nmax_copy_bytes is 2097152 now\n"
    )
    assert mounted.cli("interpose set", "allow", "python3* git").stdout == "allow is python3* git now\n"
    assert mounted.cli("interpose set", "min_read_bytes=0").stdout == "min_read_bytes is 0 now\n"
    mounted.kill()
    mounted.mount()
    found = mounted.json("interpose get")
    assert found["settings"] | {"enabled": "on", "max_copy_bytes": "2097152", "allow": "python3* git"} == found["settings"]
    assert mounted.cli("interpose set", "allow=").stdout == "allow is empty now\n"
    shown = mounted.cli("interpose get").stdout.splitlines()
    assert shown[0].split() == ["SETTING", "VALUE"]
    assert ["enabled", "on"] in [line.split() for line in shown]


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (("enabled=on", "colour=blue"), 2, "colour"),
        (("enabled=on", "off"), 2, "NAME=VALUE"),
        (("enabled",), 2, "NAME=VALUE"),
        ((), 2, "NAME=VALUE"),
        (("enabled=perhaps",), 1, "neither on nor off"),
        (("max_copy_bytes", "much"), 1, "not a number of bytes"),
    ],
)
def test_what_makes_no_sense_changes_nothing(mounted: Mounted, arguments: tuple[str, ...], code: int, says: str) -> None:
    done = mounted.cli("interpose set", *arguments, check=False)
    assert (done.returncode, done.stdout) == (code, "")
    assert says in done.stderr
    assert mounted.json("interpose get")["settings"]["enabled"] == "off"


def test_status_and_capabilities_say_whether_descriptors_are_forwarded(mounted: Mounted) -> None:
    with ControlClient.connect(mounted.record().socket) as client:
        for value, kind in (("off", "off"), ("on", "shim")):
            mounted.cli("interpose set", "enabled", value)
            assert mounted.json("status")["fd_forwarding"] == client.capabilities()["cap.fd_forwarding"] == kind
            assert ("forwarded" in mounted.cli("status").stdout) is (value == "on")
    found = json.loads(agentfsd("doctor", "--json").stdout)["findings"]
    assert next(one["detail"] for one in found if one["name"] == "fd forwarding").split()[0] in ("off", "shim,")


def test_a_mount_that_cannot_says_why(make_mount: Callable[..., Mounted]) -> None:
    mounted = make_mount(None, "--backstore", "memory")
    done = mounted.cli("interpose set", "enabled=on")
    assert "memory" in done.stderr
    assert mounted.json("status")["fd_forwarding"] == "off"
    assert "memory" in mounted.cli("interpose get").stdout
