"""Which rule holds for a path: an ordered list of rules, compiled so that a look-up goes on where its directory's look-up ended.

A rule is a verb and a pattern as in .gitignore. The last rule that matches a path decides, and what it says of a directory holds
for everything below: as git cannot re-include a file in an excluded directory, so can no ``allow`` open a file in a denied one.
Where a directory and a file in it have different verbs, the stricter one holds.
"""

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

from agentfsd.core.path_patterns import NamePattern, parse_pattern
from agentfsd.domain_errors import invalid

if TYPE_CHECKING:
    from agentfsd.core.tree import Inode  # each `agentfsd run` reads rules, and has no tree

ALLOW, RO, ASK, DENY, HIDE = range(5)  # the stricter, the higher
UNKNOWN = -1  # nobody has asked the rules yet
VERBS = {"allow": ALLOW, "ro": RO, "ask": ASK, "deny": DENY, "hide": HIDE}
VERB_NAMES = {verdict: verb for verb, verdict in VERBS.items()}
_OUTSIDE = ("~/", "//")
_MEMO_NAMES = 8192  # kept verdicts of one state; beyond that they are forgotten

_Position = tuple[int, int]  # (number of the rule, index of the part of its pattern that the next name must match)


class PathRule(NamedTuple):
    """A verb, and the pattern of the paths that it is about.

    Attributes:
        verb: ``hide``, ``deny``, ``ask``, ``ro`` or ``allow``.
        pattern: As in .gitignore. ``~/...`` and ``//...`` (an absolute path) are outside the workspace.
    """

    verb: str
    pattern: str

    @property
    def is_outside(self) -> bool:
        """Whether it is about paths outside the workspace, which `agentfsd run` enforces."""
        return self.pattern.startswith(_OUTSIDE)

    @property
    def text(self) -> str:
        return f"{self.verb} {self.pattern}"


def parse_rule(text: str) -> PathRule:
    """Parse a rule such as ``deny secrets/**``.

    Raises:
        Refusal: ``bad-rule``, or ``bad-pattern``.
    """
    verb, _, pattern = text.strip("\t\n\r ").partition(" ")
    pattern = pattern.lstrip()
    if verb not in VERBS or not pattern:
        verbs = ", ".join(VERBS)
        raise invalid(f"{text!r} is no rule", f"write VERB PATTERN, such as 'deny secrets/**'; verbs are {verbs}", "bad-rule")
    if pattern.startswith("!"):
        hint = "write 'allow PATTERN' after the rule that it is an exception of"
        raise invalid(f"{text!r} begins its pattern with '!'", hint, "bad-rule")
    rule = PathRule(verb, pattern)
    if not rule.is_outside:
        parse_pattern(pattern.encode("utf-8", "surrogateescape"))
    elif verb == "ask":
        raise invalid(f"{text!r} asks about a path outside the workspace", "use deny, hide or ro there", "bad-rule")
    return rule


class RuleSet:
    """The rules that hold for one kind of caller in one branch. It never changes.

    Attributes:
        rules: The rules, in their order.
        strictest: The strictest verb that one of them has.
        asks: Whether one of them says `ask`.
    """

    def __init__(self, rules: Iterable[PathRule]) -> None:
        self.rules = tuple(rules)
        inside = [rule for rule in self.rules if not rule.is_outside]
        self._patterns = [parse_pattern(rule.pattern.encode("utf-8", "surrogateescape")) for rule in inside]
        self.verdicts = [VERBS[rule.verb] for rule in inside]
        self.numbers = [number for number, rule in enumerate(self.rules) if not rule.is_outside]
        self.strictest = max(self.verdicts, default=ALLOW)
        self.asks = ASK in self.verdicts
        self._states: dict[tuple[int, frozenset[_Position]], RuleState] = {}
        self._epoch = object()
        self.root = self.state(ALLOW, self._closed({(number, 0) for number, one in enumerate(self._patterns) if not one.floats}))

    def forget_places(self) -> None:
        """Forget which state holds in which directory: a directory has got another path."""
        self._epoch = object()

    def state_in(self, directory: "Inode") -> "RuleState":
        """Return the state in a directory of any tree."""
        if directory.ruled[0] is self._epoch:
            found: RuleState = directory.ruled[1]
            return found
        todo: list[Inode] = []
        node: Inode | None = directory
        while node is not None and node.ruled[0] is not self._epoch:
            todo.append(node)
            node = node.parent
        state = node.ruled[1] if node is not None else None
        for each in reversed(todo):
            state = self.root if state is None else state.below(each.name)
            each.ruled = (self._epoch, state)
        assert isinstance(state, RuleState)
        return state

    def verdict(self, directory: "Inode", name: bytes, *, is_dir: bool) -> int:
        """Return what holds for a name in a directory."""
        state = self.state_in(directory)
        found = (state.dirs if is_dir else state.files).get(name)
        return state.verdict(name, is_dir=is_dir) if found is None else found

    def verdict_of(self, inode: "Inode") -> int:
        """Return what holds for an inode by its present path; of a file with several names, the one looked up last counts."""
        parent = inode.parent
        return ALLOW if parent is None else self.verdict(parent, inode.name, is_dir=inode.is_dir)

    def verdict_of_path(self, path: bytes, *, is_dir: bool = False) -> int:
        """Return what holds for a path relative to the root, whether it exists or not."""
        *above, name = [part for part in path.split(b"/") if part not in (b"", b".")] or [b""]
        state = self.root
        for directory in above:
            state = state.below(directory)
        return state.verdict(name, is_dir=is_dir) if name else ALLOW

    def deciding(self, path: bytes, *, is_dir: bool = False) -> PathRule | None:
        """Return the rule that decides about a path; None if none matches. Of a directory above it, if that one is stricter."""
        strictest, decides, state = ALLOW, None, self.root
        names = [part for part in path.split(b"/") if part not in (b"", b".")]
        for depth, name in enumerate(names, 1):
            last = depth == len(names)
            number = state.matching(name, is_dir=is_dir or not last)
            own = self.verdicts[number] if number >= 0 else ALLOW
            if number >= 0 and (own > strictest or (last and decides is None)):
                strictest, decides = own, self.rules[self.numbers[number]]
            state = state.below(name)
        return decides

    # -- what states are made of

    def state(self, inherited: int, positions: frozenset[_Position]) -> "RuleState":
        """Return the state with these properties; there is one of each."""
        key = (inherited, positions)
        known = self._states.get(key)
        if known is None:
            known = self._states[key] = RuleState(self, inherited, positions)
        return known

    def after(self, positions: Iterable[_Position], name: bytes) -> frozenset[_Position]:
        """Return where the patterns stand in the directory *name*, if they stood at these positions above it."""
        reached: set[_Position] = set()
        for number, index in positions:
            parts = self._patterns[number].parts
            part = parts[index]
            if part is None:
                reached.add((number, index))
            elif index + 1 < len(parts) and part.matches(name):
                reached.add((number, index + 1))
        return self._closed(reached)

    def _closed(self, positions: set[_Position]) -> frozenset[_Position]:
        """Add the positions that are reached because ``**`` may stand for no directory."""
        todo = list(positions)
        while todo:
            number, index = todo.pop()
            parts = self._patterns[number].parts
            if parts[index] is None and index + 1 < len(parts) and (number, index + 1) not in positions:
                positions.add((number, index + 1))
                todo.append((number, index + 1))
        return frozenset(positions)

    def finals(self, positions: frozenset[_Position]) -> list[tuple[int, NamePattern | None, bool]]:
        """Return (number of the rule, what a name must be, only directories) of each rule that one more name can match."""
        found = {(number, self._patterns[number].parts[0]) for number, one in enumerate(self._patterns) if one.floats}
        for number, index in positions:
            parts = self._patterns[number].parts
            if index + 1 == len(parts):
                found.add((number, parts[index]))
        by_number = sorted(found, key=lambda item: -item[0])
        return [(number, part, self._patterns[number].only_dirs) for number, part in by_number]

    def is_at_least(self, new: "RuleState", old: "RuleState") -> bool:
        """Return whether everything below a directory is ruled as strictly in state *new* as in state *old*."""

        if new.inherited < old.inherited:
            return False
        if any(self.verdicts[number] != ALLOW and (number, index) not in new.positions for number, index in old.positions):
            return False
        before = {number for number, _ in old.positions} | {number for number, one in enumerate(self._patterns) if one.floats}
        for number, _ in new.positions - old.positions:  # it overrides the rules before it
            holds = max(self.verdicts[number], new.inherited)
            if any(earlier < number and self.verdicts[earlier] > holds for earlier in before):
                return False
        return True


class RuleState:
    """What the names from the root to a directory have left of the patterns: all that decides about the names in it.

    Attributes:
        inherited: The verdict about the directory itself.
        positions: Where each anchored pattern stands.
        files: Verdicts by name, of what is no directory. It has the names that were asked for lately.
        dirs: Likewise, of directories.
    """

    def __init__(self, rules: RuleSet, inherited: int, positions: frozenset[_Position]) -> None:
        self._rules, self.inherited, self.positions = rules, inherited, positions
        self.files: dict[bytes, int] = {}
        self.dirs: dict[bytes, int] = {}
        self._below: dict[bytes, RuleState] = {}
        self._literal: dict[bytes, list[tuple[int, bool]]] = {}
        self._wild: list[tuple[int, NamePattern | None, bool]] = []
        for number, part, only_dirs in rules.finals(positions):
            if part is not None and part.literal is not None:
                self._literal.setdefault(part.literal, []).append((number, only_dirs))
            else:
                self._wild.append((number, part, only_dirs))
        expressions = [b".*" if part is None else part.expression for _, part, _ in self._wild]
        self._is_wild = re.compile(b"|".join(expressions), re.DOTALL).fullmatch if expressions else _never

    def verdict(self, name: bytes, *, is_dir: bool) -> int:
        """Return what holds for a name in this directory."""
        known = self.dirs if is_dir else self.files
        found = known.get(name)
        if found is None:
            number = self.matching(name, is_dir=is_dir)
            found = max(self.inherited, self._rules.verdicts[number]) if number >= 0 else self.inherited
            if len(known) >= _MEMO_NAMES:
                known.clear()
            known[name] = found
        return found

    def matching(self, name: bytes, *, is_dir: bool) -> int:
        """Return the number of the last rule that matches a name in this directory itself; -1 if none does."""
        best = -1
        for number, only_dirs in self._literal.get(name, ()):
            if number > best and (is_dir or not only_dirs):
                best = number
        if self._is_wild(name):
            for number, part, only_dirs in self._wild:
                if number < best:
                    break
                if (is_dir or not only_dirs) and (part is None or part.matches(name)):
                    return number
        return best

    def below(self, name: bytes) -> "RuleState":
        """Return the state in the directory *name*."""
        state = self._below.get(name)
        if state is None:
            positions = self._rules.after(self.positions, name) if self.positions else self.positions
            state = self._rules.state(self.verdict(name, is_dir=True), positions)
            if len(self._below) >= _MEMO_NAMES:
                self._below.clear()
            self._below[name] = state
        return state


def _never(name: bytes) -> None:
    return None
