"""The registry of backstores: each opens as what it says, and every place that names them follows the registry."""

import os
from pathlib import Path

import click
import pytest

from agentfsd.backstore.backstore_kind import BackstoreOptions
from agentfsd.backstore.known_backstores import BACKSTORES, DEFAULT
from agentfsd.cli import mount_helper
from agentfsd.cli.commands.cmd_mount import mount
from agentfsd.domain_errors import Refusal
from agentfsd.state import daemon_config
from agentfsd.state.daemon_config import MIB, DaemonConfig


@pytest.mark.parametrize("name", BACKSTORES)
def test_a_backstore_opens_as_what_it_declares(tmp_path: Path, name: str) -> None:
    kind = BACKSTORES[name]
    opened = kind.open(BackstoreOptions(str(tmp_path / "objects"), str(tmp_path / "spill"), True, MIB, MIB))
    try:
        assert opened.kind == kind.name == name
        assert opened.persistent == (kind.keeps_branches or kind.volume is not None)
        assert kind.spills == ("spilled_objects" in opened.usage())
    finally:
        opened.close()


@pytest.mark.parametrize("name", [name for name, kind in BACKSTORES.items() if kind.stand_in])
def test_what_stands_in_needs_nothing_itself(name: str) -> None:
    stand_in = BACKSTORES[BACKSTORES[name].stand_in]
    assert (stand_in.needs_root, stand_in.volume, stand_in.stand_in) == (False, None, "")


def test_the_option_of_mount_is_the_registry() -> None:
    (option,) = (found for found in mount.params if found.name == "backstore")
    assert isinstance(option, click.Option)
    assert isinstance(option.type, click.Choice)
    assert (list(option.type.choices), option.default) == (list(BACKSTORES), DEFAULT.name)
    assert all(kind.help in (option.help or "") for kind in BACKSTORES.values())


def test_an_unknown_backstore_is_refused_by_config_and_mount_helper(tmp_path: Path) -> None:
    for name in ("lower", "point", "state"):
        os.mkdir(tmp_path / name)
    config = DaemonConfig(lower=f"{tmp_path}/lower", mountpoint=f"{tmp_path}/point", state=f"{tmp_path}/state", backstore="nvme")
    with pytest.raises(Refusal, match="there is no backstore 'nvme'"):
        daemon_config.check(config)
    with pytest.raises(Refusal, match="there is no backstore 'nvme'"):
        mount_helper._VALUES["backstore"]("nvme")
