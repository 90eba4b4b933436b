"""The command `rules`, which lists and changes rules by path."""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import click
from click.shell_completion import CompletionItem

from agentfs_client import wire
from agentfsd.cli import shell_completion
from agentfsd.cli.command_base import Group, client, json_option, mount_option, plain
from agentfsd.cli.output import printing
from agentfsd.core.rule_set import VERBS
from agentfsd.core.secret_rules import SECRETS

_F = TypeVar("_F", bound=Callable[..., Any])


def _complete(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    words = [SECRETS, *VERBS] if not ctx.params.get(param.name or "") else []
    return [CompletionItem(word) for word in words if word.startswith(incomplete)] or shell_completion.files(
        ctx, param, incomplete
    )


def _scope_options(command: _F) -> _F:
    branch = click.option(
        "-b", "--branch", metavar="BRANCH", shell_complete=shell_completion.branches,
        help="For this branch, and branches made from it later; by default for all branches.",
    )  # fmt: skip
    return branch(
        click.option("--everybody", is_flag=True, help="Also for processes outside all branches: for you too.")(command)
    )


@click.group(cls=Group, invoke_without_command=True)
@click.option(
    "-b", "--branch", metavar="BRANCH", shell_complete=shell_completion.branches, help="Only rules that hold in this branch."
)
@mount_option
@json_option
@click.pass_context
def rules(ctx: click.Context, branch: str | None, named: str | None, as_json: bool) -> None:
    """Keep agents from paths: list and change rules.

    Rules say what agents may not see, read or change. A rule is a verb and a pattern as in .gitignore; the last one that matches
    a path decides. A rule about a directory holds for everything below it.

    \b
      hide   the path does not exist
      deny   the path is visible, but cannot be read or changed
      ask    each use waits until somebody allows it
      ro     the path can be read, not changed
      allow  an exception to rules before it

    Rules hold for processes in branches: what `run` and `bind` start. A pattern that begins with ~/ or // (an absolute path) is
    about files outside the workspace, for commands of `run`.

    \b
    Example:
      agentfsd rules add secrets
      agentfsd rules add 'hide .env*' 'ro .git/hooks/**'
      agentfsd rules test config/.env
      agentfsd rules
    """
    if ctx.invoked_subcommand is not None:
        ctx.obj = named  # given before the word `add`, say
        return
    with client(named) as daemon:
        found = daemon.list_rules(branch)
    if as_json:
        printing.as_json(plain(found))
    elif found:
        printing.table(("for", "verb", "pattern"), [(_scope(rule), rule.verb, rule.pattern) for rule in found])
    else:
        printing.note("there are no rules; `agentfsd rules add secrets` adds those for passwords and keys")


@rules.command()
@click.argument("texts", metavar="RULE...", nargs=-1, required=True, shell_complete=_complete)
@_scope_options
@mount_option
def add(texts: tuple[str, ...], branch: str | None, everybody: bool, named: str | None) -> None:
    """Add rules.

    The word `secrets` adds rules about files that usually hold passwords and keys. Each RULE is 'VERB PATTERN'. Or give the verb
    first, and then the patterns. Quote patterns, so that the shell leaves them alone. A rule that already exists moves to the
    end. Rules take effect at once, also for running commands. Rules about files outside the workspace take effect at the next
    `run`.

    \b
    Example:
      agentfsd rules add secrets
      agentfsd rules add deny 'secrets/**' '*.key'
      agentfsd rules add -b fix-1 'ro .git/hooks/**' 'ask deploy/**' 'allow deploy/README'
    """
    with client(named or click.get_current_context().obj) as daemon:
        _say("added", daemon.add_rules(_rules(texts), branch, everybody=everybody))


@rules.command()
@click.argument("texts", metavar="RULE...", nargs=-1, required=True, shell_complete=_complete)
@_scope_options
@mount_option
def remove(texts: tuple[str, ...], branch: str | None, everybody: bool, named: str | None) -> None:
    """Remove rules. Give each RULE as for `add`.

    \b
    Example:
      agentfsd rules remove 'hide .env*'
      agentfsd rules remove secrets
    """
    with client(named or click.get_current_context().obj) as daemon:
        _say("removed", daemon.remove_rules(_rules(texts), branch, everybody=everybody))


@rules.command()
@click.argument("paths", metavar="PATH...", nargs=-1, required=True, shell_complete=shell_completion.files)
@click.option(
    "-b", "--branch", metavar="BRANCH", shell_complete=shell_completion.branches, help="The branch; by default yours, or main."
)
@mount_option
@json_option
def test(paths: tuple[str, ...], branch: str | None, named: str | None, as_json: bool) -> None:
    """Show which rule decides about a path.

    The answer is for processes in a branch. Outside all branches, only rules with --everybody hold. Paths are relative to the
    root of the workspace, whether they exist or not. A path that ends with a slash is a directory.

    \b
    Example:
      agentfsd rules test .env deploy/key secrets/
    """
    with client(named or click.get_current_context().obj) as daemon:
        verdicts = daemon.test_rules(paths, branch)
        hello = daemon.hello
    if as_json:
        printing.as_json(plain(verdicts))
    else:
        printing.table(("path", "verdict", "by"), [(each.path, each.verdict, each.rule or "no rule") for each in verdicts])
        if branch is None and not hello.bound:
            printing.note(f"so it is for processes in branch {hello.branch}; you are outside, where only rules --everybody hold")


def _rules(texts: Sequence[str]) -> list[str]:
    """Return rules, one text each; a verb may come first, for all patterns that follow."""
    if texts[0] not in VERBS:
        return list(texts)
    if len(texts) == 1:
        raise click.UsageError(f"{texts[0]} what? Name a pattern, such as 'secrets/**'")
    return [f"{texts[0]} {pattern}" for pattern in texts[1:]]


def _say(done: str, changed: Sequence[wire.RuleInScope]) -> None:
    if len(changed) > 1:
        where = "; `agentfsd rules` lists them" if done == "added" else ""
        printing.say(f"{done} {len(changed)} rules for {_scope(changed[0])}{where}")
    else:
        printing.say(f"{done} '{changed[0].verb} {changed[0].pattern}' for {_scope(changed[0])}")


def _scope(rule: wire.RuleInScope) -> str:
    if rule.scope == "branch":
        return f"branch {rule.branch}"
    return {"everybody": "everybody", "branches": "all branches"}[rule.scope]
