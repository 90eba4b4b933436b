"""The command `agent`, which has the harnesses of agents call agentfsd: install, list, remove, check."""

import os
import shutil
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import click

from agentfsd.cli.agents import harness_checkup, integrations, settings_files
from agentfsd.cli.agents.integrations import INTEGRATIONS, InstallPlace
from agentfsd.cli.agents.settings_changes import SettingsChange
from agentfsd.cli.command_base import Failure, Group, json_option, refusals
from agentfsd.cli.output import printing

_F = TypeVar("_F", bound=Callable[..., Any])
_TOLD = {
    "added": "added to", "updated": "brought up to date in", "there": "already in", "removed": "removed from",
    "removed ours": "removed from, the rest stays as it was edited:", "absent": "not in",
}  # fmt: skip


@click.group(cls=Group)
def agent() -> None:
    """Set up agents so that their sessions have branches.

    It adds hooks to the settings of Claude Code, Codex, Gemini CLI or opencode: a session that starts in a mount gets a branch, a
    snapshot is taken before each prompt and each call of a tool, and the model is told what a call has changed. `agentfsd rewind`
    goes back.

    \b
    Example:
      agentfsd agent install claude-code
      agentfsd agent list
      agentfsd agent remove claude-code
    """


def _harness_and_place(command: _F) -> _F:
    command = click.option(
        "--project", is_flag=True, help="In the current directory, for this project; else for you, everywhere."
    )(command)
    command = click.option(
        "--plugin",
        "plugin",
        metavar="DIRECTORY",
        help="For claude-code: as a plugin in this directory (claude --plugin-dir DIRECTORY).",
    )(command)
    return click.argument("harness", type=click.Choice(list(INTEGRATIONS)))(command)


@agent.command()
@_harness_and_place
@click.option("--mcp", is_flag=True, help="Also offer the tools of `agentfsd mcp`.")
@click.option("--dry-run", is_flag=True, help="Only say what would be changed.")
def install(harness: str, project: bool, plugin: str | None, mcp: bool, dry_run: bool) -> None:
    """Add the hooks to the settings of an agent.

    What is in the settings stays as it is, with its comments and its form. Installing again brings an older version up to date.
    With --project, teammates who have no agentfsd notice nothing.

    \b
    Example:
      agentfsd agent install claude-code
      agentfsd agent install gemini --project
      agentfsd agent install claude-code --plugin ~/agentfsd-plugin
    """
    changes = _changes(harness, project, plugin, mcp)
    with refusals():
        _apply(changes, lambda change: settings_files.install(change, dry_run=dry_run))
    if plugin is not None:
        printing.note(f"try it: claude --plugin-dir {plugin}")
    else:
        printing.note(INTEGRATIONS[harness].remark)
    if harness_checkup.has_hooks_twice(INTEGRATIONS[harness], os.getcwd()):
        printing.note(
            "hooks are installed for you and for this project, so each of them runs twice: "
            f"`agentfsd agent remove {harness}` removes yours, with --project those of the project"
        )
    if mcp and not harness_checkup.has_mcp():
        printing.note("the tools need the package mcp: pip install 'agentfsd[mcp]'")


@agent.command()
@_harness_and_place
@click.option("--dry-run", is_flag=True, help="Only say what would be changed.")
def remove(harness: str, project: bool, plugin: str | None, dry_run: bool) -> None:
    """Take the hooks out of the settings of an agent.

    A file that nobody has edited since becomes what it was, byte for byte. Of a file that was edited, only what is ours goes.

    \b
    Example:
      agentfsd agent remove claude-code
      agentfsd agent remove gemini --project
    """
    changes = _changes(harness, project, plugin, mcp=True)
    failures: list[Failure] = []

    def act(change: SettingsChange) -> settings_files.Done:
        try:
            with refusals():
                return settings_files.remove(change, dry_run=dry_run)
        except Failure as exc:  # the other files are not to wait for this one
            failures.append(exc)
            return "absent"

    _apply(changes[::-1], act, quiet="absent", is_quiet=lambda: bool(failures))
    for failure in failures[:-1]:
        failure.show()
    if failures:
        raise failures[-1]


def _changes(harness: str, project: bool, plugin: str | None, mcp: bool) -> list[SettingsChange]:
    if plugin is None:
        return INTEGRATIONS[harness].files(InstallPlace(os.getcwd() if project else None), mcp)
    if harness != "claude-code" or project:
        raise Failure(
            "--plugin is for claude-code alone, without --project", "agentfsd agent install claude-code --plugin DIRECTORY"
        )
    return integrations.claude_plugin(os.path.abspath(plugin), mcp)


def _apply(
    changes: Iterable[SettingsChange],
    act: Callable[[SettingsChange], settings_files.Done],
    quiet: str = "",
    is_quiet: Callable[[], bool] = lambda: False,
) -> None:
    told = 0
    for change in changes:
        done = act(change)
        if done != quiet:
            printing.say(f"{_TOLD[done]} {change.path}")
            told += 1
    if not told and not is_quiet():
        printing.note("nothing of agentfsd is in these settings")


@agent.command("list")
@json_option
def list_(as_json: bool) -> None:
    """List the agents, and where the hooks are set up.

    STATE is `installed`, `outdated` (install again), `absent`, or `unreadable`.

    \b
    Example:
      agentfsd agent list
    """
    rows = [
        {
            "agent": each.harness, "program": shutil.which(each.program) or "", "for": scope,
            "state": settings_files.state(change), "file": change.path,
        }
        for each in INTEGRATIONS.values()
        for scope, place in (("user", InstallPlace(None)), ("project", InstallPlace(os.getcwd())))
        for change in each.files(place, False)
    ]  # fmt: skip
    if as_json:
        printing.as_json(rows)
        return
    headers = ("agent", "for", "state", "file", "program")
    printing.table(headers, [tuple(row[header] or "-" for header in headers) for row in rows], spare=("program",))


@agent.command()
@click.argument("harness", type=click.Choice(list(INTEGRATIONS)), required=False)
@json_option
@click.pass_context
def doctor(ctx: click.Context, harness: str | None, as_json: bool) -> None:
    """Check that the hooks of agents can work.

    Exits with 1 if something is wrong.

    \b
    Example:
      agentfsd agent doctor
      agentfsd agent doctor gemini
    """
    found = harness_checkup.look([INTEGRATIONS[harness]] if harness else list(INTEGRATIONS.values()), os.getcwd())
    if as_json:
        printing.as_json([{"ok": each.is_ok, "what": each.what, "hint": each.hint} for each in found])
    else:
        for each in found:
            printing.say(f"{'ok' if each.is_ok else 'NO'}  {each.what}")
            if each.hint:
                printing.detail(f"hint: {each.hint}")
    ctx.exit(0 if all(each.is_ok for each in found) else 1)
