"""What an installation has beside the program: man pages that render, a changelog of its version, licences that permit it."""

import os
import re
import runpy
import shutil
import subprocess
import sys
import tomllib
from importlib.metadata import distribution

import click
import pytest
from packaging.requirements import Requirement

from agentfsd import __version__
from agentfsd.cli.main import main
from release import licences, manpages, share
from tests.test_layout import ROOT, commands


def rendered(page: str) -> str:
    """As on an 80-column terminal, without its bold type."""
    if shutil.which("groff") is None:
        pytest.skip("groff is not installed: scripts/install --tests")
    done = subprocess.run(
        ["groff", "-ww", "-man", "-K", "utf8", "-T", "utf8", "-P-c"], input=page, capture_output=True, text=True
    )
    assert (done.returncode, done.stderr) == (0, "")
    return re.sub(".\b", "", done.stdout)


@pytest.fixture(scope="module")
def pages() -> dict[str, str]:
    return manpages.pages("agentfsd", main, __version__, share.release_date(__version__))


def test_every_command_has_a_page_and_no_other(pages: dict[str, str]) -> None:
    assert set(pages) == {"agentfsd.1", *(f"agentfsd-{name.replace(' ', '-')}.1" for name in commands(main))}


def test_pages_render_without_a_warning_and_hold_the_whole_help(pages: dict[str, str]) -> None:
    for name, command in commands(main).items():
        words = rendered(pages[f"agentfsd-{name.replace(' ', '-')}.1"])
        assert f"agentfsd {name} [OPTIONS]" in words or isinstance(command, click.Group)
        options = [switch for option in command.params if isinstance(option, click.Option) for switch in option.opts]
        assert [switch for switch in options if switch not in words] == []
        assert "EXAMPLES" in words
    assert "branch" in rendered(pages["agentfsd.1"])


def test_what_troff_would_take_for_a_request_is_text() -> None:
    @click.command()
    @click.option("--dir", help="Such as ~/a-b\\c^d.")
    def strange(dir: str) -> None:
        """Sum up.

        .start with a dot: \\fBnot bold\\fR

        \b
        Example:
          'quoted' `this` --dir="x"

            .hidden
        """

    pages = manpages.pages("group", click.Group("group", {"strange": strange}), "1", "2026-01-02")
    words = rendered(pages["group-strange.1"])
    for text in (".start with a dot: \\fBnot bold\\fR", "'quoted' `this` --dir=\"x\"", "    .hidden", "Such as ~/a-b\\c^d."):
        assert text in words, words


def test_version_is_in_the_changelog_and_the_installed_one() -> None:
    assert re.fullmatch(r"\d{4}-\d\d-\d\d", share.release_date(__version__))
    assert distribution("agentfsd").version == __version__


def test_commands_are_there_without_the_daemons_packages() -> None:
    """Man pages are made so, `agentfsd doctor` tells so what is missing, and Tab waits for no event loop."""
    absent = ("trio", "pygit2", "rich", "pygments", "pyfuse3", "starlette", "mcp", "regex", "prometheus_client")
    program = f"import sys; sys.modules.update(dict.fromkeys({absent})); import release.share"
    paths = {"PYTHONPATH": f"{ROOT / 'client'}:{ROOT / 'scripts'}"}
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=ROOT, env=os.environ | paths)
    assert (done.returncode, done.stderr) == (0, "")


def needed(name: str, extras: frozenset[str], seen: set[tuple[str, frozenset[str]]]) -> set[str]:
    """Every package that *name* brings along, of those installed here."""
    if (name, extras) in seen:
        return set()
    seen.add((name, extras))
    found = {name}
    for line in distribution(name).requires or []:
        wanted = Requirement(line)
        if wanted.marker is None or any(wanted.marker.evaluate({"extra": extra}) for extra in ("", *extras)):
            found |= needed(wanted.name, frozenset(wanted.extras), seen)
    return found


def test_licences_of_what_is_imported_permit_it() -> None:
    names = needed("agentfsd", frozenset({"daemon", "ui", "review", "metrics"}), set())  # what the Debian package holds
    assert {"pyfuse3", "msgspec", "click", "uvicorn", "prometheus-client"} <= names
    assert [name for name in names if licences.forbids_linking(licences.licence(distribution(name)))] == []
    assert licences.forbids_linking("GPL-3.0-only")
    assert licences.forbids_linking("")
    assert not licences.forbids_linking("GPLv2 with linking exception")


def test_what_scripts_package_installs_is_what_building_needs() -> None:
    """The wheel is built without isolation, so that nothing is fetched twice."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    hook = runpy.run_path(str(ROOT / "scripts" / "release" / "hatch_build.py"))["WheelHook"]
    needed = [*project["build-system"]["requires"], *hook.dependencies(None)]
    assert sorted(project["project"]["optional-dependencies"]["build"]) == sorted(needed)
    said = subprocess.run(["scripts/package", "--no"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (said.returncode, "--wheel and --try" in said.stderr) == (2, True)
