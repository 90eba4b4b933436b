"""commit -p, merge -p, restore -p and discard -p: single hunks, chosen with the keys of `git add -p`."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.forty_lines import LINES, changed
from tests.mounted import Mounted, started

_CHANGE = "sed -i -e 's/^line 3$/three/' -e 's/^line 20$/twenty/' -e '/^line 38$/d' text"


@pytest.fixture
def project(make_mount: Callable[..., Mounted], tmp_path: Path) -> Mounted:
    lower = tmp_path / "lower"
    lower.mkdir()
    (lower / "text").write_text("".join(LINES))
    (lower / "gone").write_text("gone\n")
    (lower / "old name").write_text("".join(LINES))
    (lower / "tool").write_text("#!/bin/sh\n")
    return make_mount(lower)


def test_a_hunk_is_committed_and_the_rest_stays_in_the_branch(project: Mounted) -> None:
    project.run("fix", "sh", "-ec", _CHANGE, new=True)
    done = project.answered("y n q", "commit", "fix", "-p")
    assert done.returncode == 0, done.stderr
    assert "(1/3) Commit this hunk [y,n,q,a,d,j,J,g,/,e,?]? " in done.stdout
    assert f"committed fix into {project.lower}: 1 change\n" in done.stdout
    assert (project.lower / "text").read_text() == changed(l3="three\n")
    assert (project.subtree("fix") / "text").read_text() == changed(l3="three\n", l20="twenty\n", l38="")
    left = project.cli("diff", "fix", "-p").stdout
    assert "+twenty" in left
    assert "three" not in [line[1:] for line in left.splitlines() if line[:1] in "+-"]
    project.answered("a", "commit", "fix", "-p")  # no drift: the branch knows what the real file became
    assert (project.lower / "text").read_text() == changed(l3="three\n", l20="twenty\n", l38="")
    assert project.json("diff", "fix")["changes"] == []
    assert project.fsck() == []


def test_files_names_and_modes_are_hunks_of_their_own(project: Mounted) -> None:
    script = """
        rm gone; echo new > new; chmod 755 tool; echo more >> tool; head -c 9 /dev/zero > bin
        mv 'old name' name; printf LINE | dd of=name bs=1 seek=56 conv=notrunc status=none
    """
    project.run("fix", "sh", "-ec", script, new=True)
    answers = {"bin": "n", "gone": "y", "name, renamed": "y", "name": "n", "new": "y", "tool, mode": "n", "tool": "y"}
    done = project.answered(" ".join(answers.values()), "commit", "fix", "-p")
    assert done.returncode == 0, done.stderr
    assert [line.split(" ", 1)[1].split(" [")[0] for line in done.stdout.splitlines() if "]? " in line] == [
        f"Commit this {what}" for what in ("file", "file", "renaming", "hunk", "file", "mode", "hunk")
    ]
    assert sorted(os.listdir(project.lower)) == ["name", "new", "text", "tool"]
    assert (project.lower / "name").read_text() == "".join(LINES)
    assert (project.lower / "tool").read_text() == "#!/bin/sh\nmore\n"
    assert (project.lower / "tool").stat().st_mode & 0o777 == 0o644
    assert (project.subtree("fix") / "tool").stat().st_mode & 0o777 == 0o755
    assert {change["path"] for change in project.json("diff", "fix")["changes"]} == {"bin", "name", "tool"}
    assert project.fsck() == []


def test_a_hunk_is_split_edited_searched_and_gone_to(project: Mounted, tmp_path: Path) -> None:
    project.run("fix", "sh", "-ec", "sed -i -e s/^line.2$/two/ -e s/^line.4$/four/ -e s/^line.30$/thirty/ text", new=True)
    editor = tmp_path / "editor"
    editor.write_text('#!/bin/sh\nsed -i s/^+thirty/+THIRTY/ "$1"\n')
    editor.chmod(0o755)
    # split, go to the last, edit it; back to the first by a search for its text; take it; leave the second
    done = project.answered("s g3 e /two y n", "commit", "fix", "-p", EDITOR=str(editor), VISUAL=str(editor))
    assert done.returncode == 0, done.stderr
    assert "Split into 2 hunks." in done.stdout
    assert (project.lower / "text").read_text() == changed(l2="two\n", l30="THIRTY\n")
    assert (project.subtree("fix") / "text").read_text() == changed(l2="two\n", l4="four\n", l30="thirty\n")


def test_an_edited_hunk_that_does_not_fit_is_asked_about_again(project: Mounted, tmp_path: Path) -> None:
    project.run("fix", "sh", "-ec", _CHANGE, new=True)
    editor = tmp_path / "editor"
    editor.write_text("#!/bin/sh\nsed -i 's/^ line 2$/ line two/' \"$1\"\n")
    editor.chmod(0o755)
    done = project.answered("e x n n n", "commit", "fix", "-p", EDITOR=str(editor), VISUAL=str(editor))
    assert "the edited hunk does not fit: the lines with a space or - are not those of the file any more" in done.stdout
    assert "'x' is none of the keys here" in done.stdout
    assert "nothing was taken: nothing has changed" in done.stdout
    assert (project.lower / "text").read_text() == "".join(LINES)


def test_the_end_of_the_answers_keeps_what_was_taken(project: Mounted) -> None:
    project.run("fix", "sh", "-ec", _CHANGE, new=True)
    done = project.answered("n y", "commit", "fix", "-p")
    assert done.returncode == 0
    assert f"committed fix into {project.lower}: 1 change\n" in done.stdout
    assert (project.lower / "text").read_text() == changed(l20="twenty\n")


def test_lines_without_a_line_feed_at_the_end(project: Mounted) -> None:
    (project.lower / "short").write_bytes(b"one\r\ntwo")
    project.run("fix", "sh", "-ec", "printf 'zero\\none\\r\\nTWO' > short", new=True)
    project.answered("s n y", "commit", "fix", "-p")
    assert (project.lower / "short").read_bytes() == b"one\r\nTWO"


def test_hunks_are_merged_into_a_branch_and_not_asked_about_again(project: Mounted) -> None:
    project.run("fix", "sh", "-ec", _CHANGE, new=True)
    project.run("main", "sh", "-ec", "echo mine >> text")
    done = project.answered("n y n", "merge", "-p", "fix", "main")
    assert done.returncode == 0, done.stderr
    assert (project.subtree("main") / "text").read_text() == changed(l20="twenty\n") + "mine\n"
    again = project.answered("n n", "merge", "-p", "fix", "main")
    assert "+twenty" not in again.stdout
    assert again.stdout.count("]? ") == 2
    project.cli("merge", "fix", "main")
    assert (project.subtree("main") / "text").read_text() == changed(l3="three\n", l20="twenty\n", l38="") + "mine\n"
    project.cli("undo")
    project.cli("undo")
    assert (project.subtree("main") / "text").read_text() == "".join(LINES) + "mine\n"


def test_a_branch_of_a_branch_is_committed_to_it_by_hunks(project: Mounted) -> None:
    project.run("parent", "sh", "-ec", "echo parent >> text", new=True)
    project.cli("branch create", "child", "--from", "parent")
    project.run("child", "sh", "-ec", _CHANGE)
    assert "committed child into parent: 1 change" in project.answered("y q", "commit", "child", "-p").stdout
    assert (project.subtree("parent") / "text").read_text() == changed(l3="three\n") + "parent\n"
    assert (project.lower / "text").read_text() == "".join(LINES)


def test_hunks_are_restored_from_a_snapshot(project: Mounted) -> None:
    project.run("fix", "sh", "-ec", "sed -i s/^line.3$/three/ text", new=True)
    project.cli("snapshot create", "good", "-b", "fix")
    project.run("fix", "sh", "-ec", "sed -i -e s/^three$/THREE/ -e s/^line.20$/twenty/ text; rm gone")
    done = project.answered("n y n", "restore", "-p", "-b", "fix", "good")
    assert done.returncode == 0, done.stderr
    assert "as in good again: 1 change in fix" in done.stdout
    assert (project.subtree("fix") / "text").read_text() == changed(l3="three\n", l20="twenty\n")
    assert not (project.subtree("fix") / "gone").exists()
    project.cli("undo")
    assert (project.subtree("fix") / "text").read_text() == changed(l3="THREE\n", l20="twenty\n")


def test_hunks_are_discarded_and_come_back(project: Mounted) -> None:
    project.run("fix", "sh", "-ec", f"{_CHANGE}; echo new > new; mv 'old name' name; rm gone", new=True)
    assert "e" not in project.answered("q", "discard", "-p", "fix").stdout.split("[")[1].split("]")[0].split(",")
    done = project.answered("y y y n y n", "discard", "-p", "fix")
    assert "taken back in fix: " in done.stdout, done.stdout + done.stderr
    fix = project.subtree("fix")
    assert (fix / "text").read_text() == changed(l3="three\n", l38="")
    assert set(os.listdir(fix)) - {".agentfs"} == {"gone", "old name", "text", "tool"}
    assert [change["path"] for change in project.json("diff", "fix")["changes"]] == ["text"]
    project.cli("undo")
    assert (fix / "text").read_text() == changed(l3="three\n", l20="twenty\n", l38="")
    assert project.fsck() == []


def test_a_file_that_changes_meanwhile_is_not_committed(project: Mounted, tmp_path: Path) -> None:
    """The agent is alive: what it writes while a person chooses is never mixed with what the person saw."""
    project.run("fix", "sh", "-ec", _CHANGE, new=True)
    asking = started("commit", "-m", str(project.path), "fix", "-p", stdin=-1, stdout=-1, stderr=-1)
    assert asking.stdin is not None
    assert asking.stdout is not None
    while not asking.stdout.readline().startswith("+three"):
        pass
    project.run("fix", "sh", "-ec", "sed -i s/^line.1$/one/ text")
    _, told = asking.communicate("y\nq\n")
    assert asking.returncode == 1
    assert "text was changed since its lines were picked" in told
    assert (project.lower / "text").read_text() == "".join(LINES)


def test_a_changed_real_file_is_a_conflict_as_ever(project: Mounted) -> None:
    project.run("fix", "sh", "-ec", _CHANGE, new=True)
    (project.lower / "text").write_text("".join(LINES) + "person\n")
    done = project.answered("y q", "commit", "fix", "-p")
    assert done.returncode == 1
    assert "text" in done.stdout.splitlines()[-1]
    assert (project.lower / "text").read_text() == "".join(LINES) + "person\n"
    assert project.answered("y q", "commit", "fix", "-p", "--merge").returncode == 0
    assert (project.lower / "text").read_text() == changed(l3="three\n") + "person\n"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["commit", "fix", "-p", "--json"], "-p asks about files"),
        (["merge", "-p", "fix", "other", "--into", "main"], "-p asks about the files of one SRC"),
        (["discard", "-p", "fix", "other"], "-p is for one branch"),
        (["commit", "fix", "--stat"], "--stat is for --dry-run"),
    ],
)
def test_what_does_not_go_together_is_said(project: Mounted, words: list[str], said: str) -> None:
    done = project.answered("", *words)
    assert done.returncode == 2
    assert said in done.stderr


def test_a_directory_is_not_taken_with_all_that_is_in_it(project: Mounted) -> None:
    (project.lower / "dir").mkdir()
    (project.lower / "dir" / "file").write_text("".join(LINES))
    project.run("fix", "sh", "-ec", "chmod 700 dir; echo more >> dir/file; echo more >> text", new=True)
    done = project.answered("n y", "commit", "fix", "-p")
    assert "not asked about: dir: mode 0755 -> 0700" in done.stderr
    assert (project.lower / "dir" / "file").read_text() == "".join(LINES)
    assert (project.lower / "text").read_text() == "".join(LINES) + "more\n"
    assert (project.lower / "dir").stat().st_mode & 0o777 == 0o755


def test_lines_of_the_target_stay_after_a_merge_of_the_whole(project: Mounted) -> None:
    project.run("fix", "sh", "-ec", "sed -i s/^line.3$/three/ text", new=True)
    project.cli("merge", "fix", "main")
    project.run("fix", "sh", "-ec", "sed -i -e s/^line.20$/twenty/ -e s/^line.38$/last/ text")
    project.answered("y n", "merge", "-p", "fix", "main")
    assert (project.subtree("main") / "text").read_text() == changed(l3="three\n", l20="twenty\n")


def test_what_is_written_after_it_was_shown_is_not_committed_with_a_whole_file(project: Mounted) -> None:
    for name, script, answers in (("new", "echo seen > new", "y"), ("text", "sed -i s/^line.3$/three/ text", "a")):
        branch = f"fix-{name}"
        project.run(branch, "sh", "-ec", script, new=True)
        asking = started("commit", "-m", str(project.path), branch, "-p", stdin=-1, stdout=-1, stderr=-1)
        assert asking.stdin is not None
        assert asking.stdout is not None
        while not asking.stdout.readline().startswith(("+seen", "+three")):
            pass
        project.run(branch, "sh", "-ec", f"echo unseen >> {name}")
        _, told = asking.communicate(f"{answers}\n")
        assert f"{name} was changed since its lines were picked" in told
        assert not (project.lower / "new").exists()
        assert (project.lower / "text").read_text() == "".join(LINES)


def test_a_renamed_directory_does_not_take_refused_lines_along(project: Mounted) -> None:
    (project.lower / "old").mkdir()
    for name in "ag":
        (project.lower / "old" / name).write_text("".join(LINES))
    project.run(
        "fix", "sh", "-ec", "mv old new; for f in new/a new/g; do printf LINE | dd of=$f bs=1 conv=notrunc; done", new=True
    )
    done = project.answered("y n", "commit", "fix", "-p")
    assert done.returncode == 1
    assert "new/g  a renamed directory has it, too" in done.stdout
    assert sorted(os.listdir(project.lower / "old")) == ["a", "g"]
    assert project.answered("y y", "commit", "fix", "-p").returncode == 0
    assert (project.lower / "new" / "g").read_text() == "LINE" + "".join(LINES)[4:]


def test_a_file_that_became_a_directory_is_not_asked_about(project: Mounted) -> None:
    project.run("fix", "sh", "-ec", "rm gone; mkdir gone; echo a > gone/a; echo b > gone/b; echo more >> text", new=True)
    done = project.answered("q", "commit", "fix", "-p")
    assert "not asked about: gone" in done.stderr


def test_an_edit_of_the_last_line_keeps_the_lines_apart(project: Mounted, tmp_path: Path) -> None:
    (project.lower / "short").write_bytes(b"one\r\nlast")
    project.run("fix", "sh", "-ec", "printf 'one\\r\\nLAST\\n' > short", new=True)
    editor = tmp_path / "editor"
    editor.write_text('#!/bin/sh\nsed -i s/^+LAST/+Last/ "$1"\n')
    editor.chmod(0o755)
    project.answered("e", "commit", "fix", "-p", EDITOR=str(editor), VISUAL=str(editor))
    assert (project.lower / "short").read_bytes() == b"one\r\nLast\n"


def test_nothing_to_pick(project: Mounted) -> None:
    project.cli("branch create", "fix")
    assert project.answered("", "commit", "fix", "-p").stdout == "there is nothing to commit\n"
