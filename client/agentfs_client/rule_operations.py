"""The operations on settings, rules by path, and questions to people. This module knows no transport."""

from collections.abc import Sequence
from typing import Literal

from agentfs_client import wire
from agentfs_client.question import Question, ask, operation


class RuleOperations:
    """What a client asks about settings, about rules by path, and about questions that a rule puts to a person.

    Raises:
        AgentFSError: every method raises it if the daemon refuses the request.
    """

    @operation
    def policy(self) -> Question[dict[str, str]]:
        return ask(wire.PolicyGet(), wire.PolicyReply, lambda reply: reply.policy)

    @operation
    def set_policy(self, name: str, value: str) -> Question[dict[str, str]]:
        """Change one setting and return all of them. `agentfsd policy set --help` explains each."""
        return ask(wire.PolicySet(name=name, value=value), wire.PolicyReply, lambda reply: reply.policy)

    @operation
    def list_rules(self, branch: str | None = None) -> Question[list[wire.RuleInScope]]:
        """Return the rules by path: of every scope, or those that hold for processes bound to *branch*."""
        return ask(wire.RulesList(branch=branch), wire.RulesReply, lambda reply: reply.rules)

    @operation
    def add_rules(
        self, rules: Sequence[str], branch: str | None = None, *, everybody: bool = False
    ) -> Question[list[wire.RuleInScope]]:
        """Add rules such as "deny *.key", and return them. See wire.RulesChange.

        Args:
            rules: the rules.
            branch: the branch for whose processes they hold; None means all branches.
            everybody: they hold for processes outside all branches as well.
        """
        request = wire.RulesChange(add=list(rules), branch=branch, everybody=everybody)
        return ask(request, wire.RulesReply, lambda reply: reply.rules)

    @operation
    def remove_rules(
        self, rules: Sequence[str], branch: str | None = None, *, everybody: bool = False
    ) -> Question[list[wire.RuleInScope]]:
        """Remove rules, and return them. The arguments are those of add_rules()."""
        request = wire.RulesChange(remove=list(rules), branch=branch, everybody=everybody)
        return ask(request, wire.RulesReply, lambda reply: reply.rules)

    @operation
    def test_rules(self, paths: Sequence[str], branch: str | None = None) -> Question[list[wire.PathVerdict]]:
        """Return what the rules of a branch say about paths. A path that ends with a slash is a directory."""
        return ask(wire.RulesTest(paths=list(paths), branch=branch), wire.VerdictsReply, lambda reply: reply.verdicts)

    @operation
    def list_asks(
        self, branch: str | None = None, *, wait: bool = False, known: Sequence[int] = ()
    ) -> Question[list[wire.PathQuestion]]:
        """Return the processes that wait for an answer. With *wait*, return once a process waits that is not in *known*.

        Through the control file this returns after a second at most, perhaps without a new one.
        """
        return ask(wire.AsksList(branch=branch, wait=wait, known=list(known)), wire.AsksReply, lambda reply: reply.asks)

    @operation
    def answer_ask(
        self, number: int, *, allow: bool, lasts: Literal["once", "session", "rule"] = "once"
    ) -> Question[wire.PathQuestion]:
        """Answer a question and return it. See wire.AsksAnswer."""
        return ask(wire.AsksAnswer(id=number, allow=allow, lasts=lasts), wire.AsksReply, lambda reply: reply.asks[0])

    @operation
    def obey_rules(self, branch: str) -> Question[str]:
        """Keep the rules of a branch in the rest of this conversation, as a process that is bound to it must."""
        return ask(wire.RulesObey(branch=branch), wire.Done, lambda reply: reply.message)
