"""Requests about rules by path. A bound process may look at the rules that hold for it, and change none."""

import errno

from agentfs_client import wire
from agentfsd.control.audit_notes import changes_nothing, noted_rules
from agentfsd.control.authorization import own_branch, unbound_only
from agentfsd.control.handler_services import Services
from agentfsd.control.operation_declaration import control_operation
from agentfsd.control.request_context import RequestContext
from agentfsd.core.overlay_rules import ALL_BRANCHES, MOUNT
from agentfsd.core.rule_set import VERB_NAMES, PathRule, RuleSet
from agentfsd.domain_errors import Refusal, invalid


@control_operation(wire.RulesList, permission=own_branch("branch"), note=changes_nothing)
async def list_rules(services: Services, request: wire.RulesList, context: RequestContext) -> wire.RulesReply:
    rules, branch = services.overlay.rules, request.branch
    if branch is None and context.bound_to is not None:
        branch = context.branch
    known = services.overlay
    branch_ids = known.branches.ids() if branch is None else [known.refs.branch(branch).id]
    return wire.RulesReply(
        rules=[each for scope in (MOUNT, ALL_BRANCHES, *branch_ids) for each in _wire_rules(services, scope, rules.of(scope))]
    )


@control_operation(wire.RulesChange, permission=unbound_only, note=noted_rules)
async def change_rules(services: Services, request: wire.RulesChange, context: RequestContext) -> wire.RulesReply:
    if request.everybody and request.branch is not None:
        raise invalid("a rule is either a branch's or everybody's", "name a branch, or say everybody")
    scope = MOUNT if request.everybody else ALL_BRANCHES
    if request.branch is not None:
        scope = services.overlay.refs.branch(request.branch).id
    if services.overlay.rules.are_about_workspace(request.add):
        await _check_enforced(services, scope)
    changed = services.overlay.rules.change(scope, request.add, request.remove)
    await services.settle()
    return wire.RulesReply(rules=_wire_rules(services, scope, changed))


async def _check_enforced(services: Services, scope: str) -> None:
    """Refuse a new rule for branches whose files the kernel shows to runs, past the daemon."""
    if services.runs is None:
        return
    await services.runs.look(None if scope in (MOUNT, ALL_BRANCHES) else [scope])  # which ends what no run uses any more
    names = sorted(services.branch_name(each) for each in services.runs.live if scope in (MOUNT, ALL_BRANCHES, each))
    if names:
        raise Refusal(
            errno.EBUSY, "rules-unheeded", f"runs see {', '.join(names)} as overlays of the kernel, where no rule by path holds",
            "end these runs first: `agentfsd bindings` lists their processes",
        )  # fmt: skip


@control_operation(wire.RulesTest, permission=own_branch("branch"), note=changes_nothing)
async def test_rules(services: Services, request: wire.RulesTest, context: RequestContext) -> wire.VerdictsReply:
    branch = services.overlay.refs.branch(request.branch or context.branch)
    rules = services.overlay.rules.for_branch(branch.id) or RuleSet(())
    return wire.VerdictsReply(verdicts=[_verdict(rules, path) for path in request.paths])


@control_operation(wire.RulesObey, permission=own_branch("branch"), note=changes_nothing)
async def obey_rules(services: Services, request: wire.RulesObey, context: RequestContext) -> wire.Done:
    branch = services.overlay.refs.branch(request.branch)
    context.peer.obeys = branch.id
    return wire.Done(message=f"this conversation keeps the rules of {branch.name}")


def _verdict(rules: RuleSet, path: str) -> wire.PathVerdict:
    raw, is_dir = path.encode(), path.endswith("/")
    decides = rules.deciding(raw, is_dir=is_dir)
    verdict = VERB_NAMES[rules.verdict_of_path(raw, is_dir=is_dir)]
    return wire.PathVerdict(path=path, verdict=verdict, rule=decides.text if decides is not None else "")


def _wire_rules(services: Services, scope: str, rules: list[PathRule]) -> list[wire.RuleInScope]:
    kind = {MOUNT: "everybody", ALL_BRANCHES: "branches"}.get(scope, "branch")
    name = services.branch_name(scope) if kind == "branch" else ""
    return [wire.RuleInScope(scope=kind, branch=name, verb=rule.verb, pattern=rule.pattern) for rule in rules]
