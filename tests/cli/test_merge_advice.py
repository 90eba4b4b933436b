"""What merge and commit advise when there are conflicts: only what helps."""

import pytest

from agentfs_client import wire
from agentfsd.cli import merge_report


def reply(*kinds: str) -> wire.MergeReply:
    conflicts = [wire.Conflict(path=".git", kind=kind, message="why", source="two", against=["main"]) for kind in kinds]
    return wire.MergeReply(how="merged", into="main", changed=[], conflicts=conflicts, left=["two"])


@pytest.mark.parametrize(
    ("kind", "last"),
    [
        ("repository", "  settle what the list says of the repository, and merge again"),
        ("type", "  or change two or main, and merge again"),
        ("history", "  or change two or main, and merge again"),
        ("executed", "  or change two or main, and merge again"),
    ],
)
def test_the_last_advice_of_a_merge_follows_from_what_stands_before_it(
    capsys: pytest.CaptureFixture[str], kind: str, last: str
) -> None:
    merge_report.advise(reply(kind), None)
    lines = capsys.readouterr().err.splitlines()
    assert lines[-1] == last
    assert last.startswith("  or ") == (len(lines) > 2)


@pytest.mark.parametrize("kind", ["under-way", "repository", "locked"])
def test_a_commit_offers_no_option_while_git_has_something_to_finish(capsys: pytest.CaptureFixture[str], kind: str) -> None:
    assert not merge_report.advise_in_git(reply(kind, "drift"))
    assert "settle what the list says of the repository" in capsys.readouterr().err
    assert merge_report.advise_in_git(reply("drift"))
