"""Rules by path: patterns mean what git's check-ignore says they mean."""

import subprocess
from itertools import product
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agentfsd.core.rule_set import ALLOW, DENY, HIDE, RO, VERBS, PathRule, RuleSet, RuleState, parse_rule
from agentfsd.domain_errors import Refusal

_NAMES = ["a", "b", "ab", ".env", "x.key", "a-b"]
_PARTS = st.sampled_from(
    [*_NAMES, "*", "**", "?", "a*", "*b", "*.key", ".env*", "[ab]", "[!a]", "[a-c]*", "\\a", "***", "[]a]", "[[:alpha:]]"]
)
_PATTERNS = st.builds(
    lambda lead, parts, tail: lead + "/".join(parts) + tail,
    st.sampled_from(["", "", "/"]), st.lists(_PARTS, min_size=1, max_size=4), st.sampled_from(["", "", "/"]),
)  # fmt: skip
_RULES = st.lists(st.tuples(st.booleans(), _PATTERNS), min_size=1, max_size=6)
_PATHS = ["/".join(path) for path in [
    ("a",), ("b",), (".env",), ("x.key",), ("ab",), ("a-b",), ("a", "b"), ("a", "a"), ("a", ".env"), ("b", "x.key"),
    ("a", "b", "a"),
    ("a", "b", "x.key"), ("ab", "a", "b"), ("b", "b", "b", "b"), ("a-b", "a", "b", "ab"), ("b", "a", "a", ".env"),
]]  # fmt: skip
_DIRECTORIES = ["a", "b", "ab", "a/b", "b/a", "a/a/b"]


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("ignored")
    subprocess.run(["git", "init", "-q", root], check=True)
    return root


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(rules=_RULES)
def test_patterns_match_what_git_ignores(repository: Path, rules: list[tuple[bool, str]]) -> None:
    (repository / ".gitignore").write_text("".join(f"{'!' if allow else ''}{pattern}\n" for allow, pattern in rules))
    asked = subprocess.run(
        ["git", "check-ignore", "--no-index", "-z", "--stdin"], cwd=repository, input="\0".join(_PATHS) + "\0",
        capture_output=True, text=True,
    )  # fmt: skip
    ignored = set(asked.stdout.split("\0")) - {""}
    compiled = RuleSet(PathRule("allow" if allow else "deny", pattern) for allow, pattern in rules)
    assert {path for path in _PATHS if compiled.verdict_of_path(path.encode()) == DENY} == ignored


def test_the_stricter_rule_of_directory_and_file_holds() -> None:
    rules = RuleSet(map(parse_rule, ["ro vendor/", "hide .env*", "allow vendor/free"]))
    assert [rules.verdict_of_path(path) for path in (b"vendor/lib.c", b"vendor/free", b"vendor/.env")] == [RO, RO, HIDE]


def test_an_exception_opens_what_a_pattern_of_contents_covers() -> None:
    rules = RuleSet(map(parse_rule, ["ask deploy/**", "allow deploy/README"]))
    assert rules.verdict_of_path(b"deploy", is_dir=True) == rules.verdict_of_path(b"deploy/README") == ALLOW
    decides = rules.deciding(b"deploy/sub/x")
    assert decides is not None and decides.text == "ask deploy/**"


def state_in(rules: RuleSet, directory: str) -> RuleState:
    state = rules.root
    for name in directory.split("/"):
        state = state.below(name.encode())
    return state


@pytest.mark.parametrize(
    ("texts", "allowed"),
    [
        (["deny */key", "ro b/key"], False),
        (["hide */key", "ask b/key"], False),
        (["deny key", "allow b/key"], False),
        (["hide */key", "deny b/*"], False),
        (["ro b/key", "deny */key"], True),
        (["ro */key", "deny b/key"], True),
        (["deny */key", "ro c/key"], True),
        (["deny */key", "ro b/key", "hide b/"], True),
    ],
)
def test_a_directory_moves_only_to_where_no_later_weaker_rule_is_about_its_content(texts: list[str], allowed: bool) -> None:
    rules = RuleSet(map(parse_rule, texts))
    assert rules.is_at_least(state_in(rules, "b"), state_in(rules, "a")) is allowed


@settings(max_examples=200, deadline=None)
@given(
    texts=st.lists(st.builds("{} {}".format, st.sampled_from(sorted(VERBS)), _PATTERNS), min_size=1, max_size=6),
    old=st.sampled_from(_DIRECTORIES), new=st.sampled_from(_DIRECTORIES),
)  # fmt: skip
def test_what_is_at_least_as_strict_is_so_for_every_path_below(texts: list[str], old: str, new: str) -> None:
    rules = RuleSet(map(parse_rule, texts))
    if rules.is_at_least(state_in(rules, new), state_in(rules, old)):
        for path, is_dir in product(_PATHS, (False, True)):
            before, after = (rules.verdict_of_path(f"{place}/{path}".encode(), is_dir=is_dir) for place in (old, new))
            assert after >= before, path


@pytest.mark.parametrize(
    "text", ["deny", "forbid x", "deny !x", "deny a//b", "deny ../x", "deny [a", "deny x\\", "ask ~/x", "deny /"]
)
def test_what_could_never_match_is_no_rule(text: str) -> None:
    with pytest.raises(Refusal):
        parse_rule(text)
