"""The steps of agents' sessions: numbers, snapshots only of what changed, and what a restore or an undo does to them."""

import pytest

from agentfsd.core import session_steps
from agentfsd.core.session_steps import SessionSteps
from tests.overlays import Opened


def _take(opened: Opened, session: str = "s", *, prompt: bool = False, key: str = "") -> tuple[str, str, bool, bool]:
    """The place, the snapshot, whether that is new, and whether the files were replaced."""
    step, is_new = opened.overlay.steps.take("work", session, is_prompt=prompt, key=key)
    return f"{step.turn}.{step.call}", step.snapshot, is_new, step.replaced


def test_turns_and_calls_are_counted_in_each_session(opened: Opened) -> None:
    opened.overlay.branches.create("work")
    places = [_take(opened, session, prompt=prompt)[0] for session, prompt in [
        ("a", False), ("a", True), ("a", False), ("b", True), ("a", False), ("a", True), ("a", False), ("b", False),
    ]]  # fmt: skip
    assert places == ["0.1", "1.0", "1.1", "1.0", "1.2", "2.0", "2.1", "1.1"]


def test_a_snapshot_is_new_only_if_something_changed(opened: Opened) -> None:
    opened.overlay.branches.create("work")
    first = _take(opened, prompt=True)
    assert first[2] and _take(opened)[1:3] == (first[1], False)
    opened.write("f", b"1", "work")
    second = _take(opened)
    assert second[2] and second[1] != first[1]
    assert _take(opened, "other")[1:3] == (second[1], False)
    opened.overlay.snapshots.create("work", "mine")
    opened.write("f", b"2", "work")
    opened.overlay.snapshots.create("work", "named")
    own = _take(opened)
    assert own[2] and own[1] != "named"  # whoever took that one may delete it
    assert _take(opened)[1:3] == (own[1], False)


def test_a_temporary_snapshot_is_no_state_to_go_back_to(opened: Opened) -> None:
    opened.overlay.branches.create("work")
    opened.overlay.snapshots.create("work", "soon-gone", temporary=True)
    assert _take(opened)[1:3] == ("work-2", True)


def test_steps_survive_a_restart_and_go_with_their_snapshot(opened: Opened) -> None:
    opened.overlay.branches.create("work")
    for number in range(3):
        opened.write("f", b"%d" % number, "work")
        _take(opened, prompt=True)
    opened.reopen()
    steps = opened.overlay.steps.all()
    assert [(step.turn, step.branch) for step in steps] == [(1, "work"), (2, "work"), (3, "work")]
    opened.overlay.snapshots.delete(steps[1].snapshot_id)
    opened.reopen()
    assert [step.turn for step in opened.overlay.steps.all()] == [1, 3]
    assert _take(opened, prompt=True)[0] == "4.0"
    assert opened.overlay.fsck() == []


def test_a_restore_and_its_undo_are_noted_once_each(opened: Opened) -> None:
    opened.overlay.branches.create("work")
    first = opened.overlay.steps.take("work", "s", is_prompt=True)[0]
    opened.write("f", b"1", "work")
    assert not _take(opened, prompt=True)[3]
    opened.overlay.branches.restore("work", first.snapshot_id)
    assert _take(opened)[3] and not _take(opened)[3]
    opened.overlay.undo_log.undo()
    assert _take(opened)[3] and not _take(opened)[3]
    opened.overlay.branches.restore("work", first.snapshot_id)
    opened.overlay.undo_log.undo()
    assert not _take(opened)[3], "the files are as the session left them"
    opened.overlay.branches.create("other")
    opened.overlay.branches.restore("other", first.snapshot_id)
    assert not _take(opened)[3]


def test_an_old_restore_that_is_forgotten_replaces_nothing(opened: Opened) -> None:
    opened.overlay.branches.create("work")
    opened.overlay.branches.create("other")
    first = opened.overlay.steps.take("work", "s", is_prompt=True)[0]
    opened.write("f", b"1", "work")
    opened.overlay.branches.restore("work", first.snapshot_id)
    assert _take(opened)[3]
    for _ in range(opened.overlay.retention.undo_entries + 5):
        opened.write("f", b"1", "other")
        opened.overlay.branches.restore("other", first.snapshot_id)
    assert not _take(opened)[3]


def test_a_call_is_found_by_its_key(opened: Opened) -> None:
    opened.overlay.branches.create("work")
    branch = opened.overlay.refs.branch("work").id
    for key in ("a", "b", "a"):
        opened.write("f", key.encode(), "work")
        _take(opened, key=key)
    find = opened.overlay.steps.find
    assert [find(branch, "s", key)[0].snapshot for key in ("a", "b", "none", "")] == ["work-3", "work-2", "work-3", "work-3"]


def test_a_session_that_only_reads_has_few_steps(opened: Opened) -> None:
    opened.overlay.branches.create("work")
    for _ in range(3):
        _take(opened, prompt=True)
        for _ in range(100):
            _take(opened)
    steps = opened.overlay.steps.all()
    assert [step.turn for step in steps if not step.call] == [1, 2, 3]
    assert len(steps) == 3 + 3 * 64
    assert steps[-1].call == 100
    assert isinstance(opened.overlay.steps, SessionSteps)


def test_only_so_many_snapshots_of_steps_are_kept(opened: Opened) -> None:
    opened.overlay.branches.create("work")
    opened.overlay.settings.set("retention.step_count", "3")
    for number in range(6):
        opened.write("f", b"%d" % number, "work")
        _take(opened, prompt=True)
        opened.overlay.retention.apply(opened.overlay.refs.branch("work").id)
    assert [step.turn for step in opened.overlay.steps.all()] == [4, 5, 6]
    assert opened.overlay.fsck() == []


def test_an_event_that_is_told_twice_is_one_step(opened: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    opened.overlay.branches.create("work")
    opened.overlay.branches.create("other")
    for prompt, place in ((True, "1.0"), (False, "1.1")):
        first = _take(opened, prompt=prompt, key="k")
        assert (first[0], _take(opened, prompt=prompt, key="k")) == (place, (place, first[1], False, False))
    assert _take(opened, prompt=True, key="k")[0] == "2.0"  # a call was between
    opened.write("f", b"1", "work")
    assert _take(opened, prompt=True, key="k")[0] == "3.0"  # something changed
    assert _take(opened, prompt=True, key="l")[0] == "4.0"
    assert opened.overlay.steps.take("other", "s", is_prompt=True, key="l")[0].turn == 5
    assert _take(opened, prompt=True)[0] == "6.0" and _take(opened, prompt=True)[0] == "7.0"  # they have no name
    monkeypatch.setattr(session_steps, "_TWICE_NS", 0)
    assert [_take(opened, prompt=True, key="m")[0] for _ in range(2)] == ["8.0", "9.0"]  # each at its own time


def test_a_bound_process_moves_no_session_into_its_branch(opened: Opened) -> None:
    ids = {name: opened.overlay.branches.create(name).id for name in ("home", "other", "third")}

    def home_after(branch: str, *, is_bound: bool) -> str:
        home = opened.overlay.steps.take(branch, "s", is_prompt=True, is_bound=is_bound)[0].home_id
        return next((name for name, number in ids.items() if number == home), "another")

    assert home_after("home", is_bound=True) == "home"  # the first
    assert home_after("other", is_bound=True) == "home"
    opened.reopen()
    assert home_after("other", is_bound=True) == "home"
    assert home_after("third", is_bound=False) == "third"
    assert home_after("other", is_bound=True) == "third"
    opened.overlay.branches.discard("third")
    assert home_after("other", is_bound=True) == "third"  # an older branch does not follow it
    ids["new"] = opened.overlay.branches.create("new").id
    assert home_after("new", is_bound=True) == "new"
    assert home_after("other", is_bound=True) == "new"
