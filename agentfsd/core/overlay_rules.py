"""Rules by path of one overlay: stored in its database, compiled for each branch.

There are three scopes. The rules of the mount hold for everybody. Those of all branches, and those of one branch, hold for bound
processes: what `agentfsd run` and `agentfsd bind` start. A branch takes along the rules of the branch that it is made from.
"""

import errno
from collections.abc import Callable, Iterable

from agentfsd.core.rule_set import HIDE, PathRule, RuleSet, parse_rule
from agentfsd.core.secret_rules import SECRET_RULES, SECRETS
from agentfsd.domain_errors import Refusal
from agentfsd.metadata import rule_rows
from agentfsd.metadata.row_store import Store
from agentfsd.metadata.transaction import Transaction

MOUNT, ALL_BRANCHES = "*", ""  # scopes; any other is a branch's id


class OverlayRules:
    """The rules of one overlay.

    Attributes:
        active: Whether there is any rule about paths in the workspace.
        hides: Whether one of them hides something.
        for_everybody: The rules that hold for a process that is bound to no branch; None: there are none.
        on_changed: Called after the rules have changed.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self.on_changed: list[Callable[[], object]] = []
        self.active = self.hides = False
        self.for_everybody: RuleSet | None = None
        self._by_branch: dict[str, RuleSet | None] = {}
        self._rules: dict[str, list[PathRule]] = {}
        self._load()

    def _load(self) -> None:
        stored = rule_rows.read(self._store)
        self._rules = {scope: [parse_rule(text) for text in texts] for scope, texts in stored.items()}
        self._by_branch = {}
        inside = [rule for rules in self._rules.values() for rule in rules if not rule.is_outside]
        self.active = bool(inside)
        self.hides = any(rule.verb == "hide" for rule in inside)
        self.for_everybody = _compiled(self._rules.get(MOUNT, ()))

    def for_branch(self, branch_id: str) -> RuleSet | None:
        """Return the rules that hold for processes bound to a branch; None: there are none."""
        try:
            return self._by_branch[branch_id]
        except KeyError:
            made = self._by_branch[branch_id] = _compiled(self.in_force(branch_id))
            return made

    def in_force(self, branch_id: str) -> list[PathRule]:
        """Return all rules that hold for processes bound to a branch, those about paths outside the workspace too."""
        scopes = (MOUNT, ALL_BRANCHES, branch_id)
        return [rule for scope in dict.fromkeys(scopes) for rule in self._rules.get(scope, ())]

    def of(self, scope: str) -> list[PathRule]:
        """Return the rules of one scope."""
        return list(self._rules.get(scope, ()))

    def hides_below(self, branch_id: str) -> bool:
        """Return whether a rule hides anything from processes bound to a branch."""
        rules = self.for_branch(branch_id)
        return rules is not None and rules.strictest == HIDE

    # -- changing them

    def change(self, scope: str, add: Iterable[str] = (), remove: Iterable[str] = ()) -> list[PathRule]:
        """Remove rules from a scope and add others at its end. One that is there already moves to the end.

        Returns:
            The rules that were removed or added.

        Raises:
            Refusal: ``bad-rule``, ``bad-pattern``, or ``no-such-rule`` for one that cannot be removed; nothing was changed.
        """
        known, added, texts = self.of(scope), _parsed(add), list(remove)
        missing = [rule for rule in _parsed(text for text in texts if text.strip() != SECRETS) if rule not in known]
        removed = [rule for rule in _parsed(texts) if rule in known]
        if missing or (texts and not removed):
            shown = missing[0].text if missing else SECRETS
            raise Refusal(errno.ENOENT, "no-such-rule", f"there is no rule {shown!r} here", "`agentfsd rules` lists them")
        kept = [rule for rule in known if rule not in removed and rule not in added]
        with self._store.transaction():
            rule_rows.replace(self._store, scope, [rule.text for rule in (*kept, *added)])
        self._load()
        for listener in self.on_changed:
            listener()
        return [*removed, *added]

    @staticmethod
    def are_about_workspace(texts: Iterable[str]) -> bool:
        """Return whether one of these rules is about paths of the workspace. Refusal: as for change()."""
        return any(not rule.is_outside for rule in _parsed(texts))

    def branch_made(self, tx: Transaction, branch_id: str, source_id: str) -> None:
        """Give a new branch the rules of the branch that it is made from, in the open transaction."""
        rules = self._rules.get(source_id)
        if rules:
            rule_rows.replace(self._store, branch_id, [rule.text for rule in rules])
            tx.put(self._rules, branch_id, rules)

    def forget_gone(self, branch_ids: set[str]) -> None:
        """Delete the rules of branches that nothing can bring back."""
        gone = self._rules.keys() - branch_ids - {MOUNT, ALL_BRANCHES}
        if gone:
            with self._store.transaction():
                for scope in gone:
                    rule_rows.replace(self._store, scope, [])
            self._load()

    # -- changes of the tree

    def directory_moved(self) -> None:
        """Look all directories up anew: one has got another path."""
        for rules in (self.for_everybody, *self._by_branch.values()):
            if rules is not None:
                rules.forget_places()


def _compiled(rules: Iterable[PathRule]) -> RuleSet | None:
    made = RuleSet(rules)
    return made if made.verdicts else None


def _parsed(texts: Iterable[str]) -> list[PathRule]:
    """Parse rules; the word ``secrets`` stands for many. Of equal ones the last counts."""
    each = [rule for text in texts for rule in (SECRET_RULES if text.strip() == SECRETS else (text,))]
    return list(dict.fromkeys(parse_rule(text) for text in reversed(each)))[::-1]
