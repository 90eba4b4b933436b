"""`agentfsd diff` as people and programs use it: its forms, paths, colour, the pager."""

import base64
import fcntl
import json
import os
import pty
import random
import re
import struct
import subprocess
import termios
import time
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from agentfs_client import locate, wire
from agentfs_client.control import ControlClient
from agentfsd.cli.connect import mount_finder
from agentfsd.cli.output import diff_views, patch_colours, word_diff
from agentfsd.domain_errors import Refusal
from tests.mounted import AGENTFSD, Mounted, agentfsd

PLAIN = re.compile(rb"\x1b\[[0-9;?]*[A-Za-z]|\x1b[=>]")


@pytest.fixture
def branch(mounted: Mounted) -> Mounted:
    """The branch *one*: some of everything."""
    mounted.cli("branch create", "one")
    sub = mounted.subtree("one")
    (sub / "file").write_bytes(b"caf\xe9\nbranch\n")
    (sub / "sub" / "inner").write_bytes(b"inner\nmore\n")
    (sub / "sub" / "deep" / "leaf").unlink()
    os.unlink(sub / "link")
    os.symlink("sub/inner", sub / "link")
    (sub / "tool").write_text("#!/bin/sh\n")
    (sub / "tool").chmod(0o755)
    (sub / "data").write_bytes(bytes(range(256)))
    with open(os.fsencode(sub) + b"/\xff \n", "wb") as file:
        file.write(b"odd\n")
    (sub / "empty").mkdir()
    return mounted


def raw(mounted: Mounted, *arguments: str) -> bytes:
    command = [*AGENTFSD, "diff", "-m", str(mounted.path), *arguments]
    return subprocess.run(command, capture_output=True, check=True, timeout=60).stdout


def test_a_patch_in_a_pipe_makes_the_branch_of_a_copy(branch: Mounted, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    subprocess.run(["cp", "-a", branch.lower, copy], check=True)
    command = f"{' '.join(AGENTFSD)} diff -m {branch.path} --patch one | git apply"
    subprocess.run(command, shell=True, cwd=copy, check=True, env={**os.environ, "PYTHONPATH": os.getcwd()})
    (copy / "empty").mkdir()  # all that git cannot say here
    subprocess.run(["diff", "-r", "--no-dereference", copy, branch.subtree("one")], check=False)
    left = subprocess.run(
        ["diff", "-r", "--no-dereference", copy, branch.subtree("one")], capture_output=True, text=True, check=False
    )
    assert left.stdout in ("", f"Only in {branch.subtree('one')}/sub: deep\n")
    assert os.access(copy / "tool", os.X_OK)
    assert b"# not in this patch: empty: empty directory added\n" in raw(branch, "--patch", "one")


def test_stat_has_a_bar_for_each_file_and_a_sum(branch: Mounted) -> None:
    lines = branch.cli("diff", "one", "--stat").stdout.splitlines()
    assert lines[:-1] == [
        " data          | Bin 0 -> 256 bytes (new)",
        " empty         |   0 (empty directory added)",
        " file          |   3 ++-",
        " link          |   2 +-",
        " sub/deep/leaf |   1 - (gone)",
        " sub/inner     |   1 +",
        " tool          |   1 + (new)",
        r' "\377 \n"     |   1 + (new)',
    ]
    assert lines[-1] == " 8 files changed, 6 insertions(+), 3 deletions(-)"


def test_forms_have_json(branch: Mounted) -> None:
    patches = json.loads(raw(branch, "one", "--patch", "--json", "--", "sub"))
    assert [(patch["status"], patch["path"], patch["added"], patch["removed"]) for patch in patches] == [
        ("D", "sub/deep/leaf", 0, 1), ("M", "sub/inner", 1, 0),
    ]  # fmt: skip
    assert base64.b64decode(patches[1]["patch"]).startswith(b"diff --git a/sub/inner b/sub/inner\n")
    stat = json.loads(raw(branch, "one", "--stat", "--json", "--", "data"))
    assert (stat[0]["is_binary"], stat[0]["added"], stat[0]["patch"]) == (True, -1, "")
    found = json.loads(raw(branch, "one", "--json", "--", "sub/inner"))
    assert [change["path"] for change in found["changes"]] == ["sub/inner"]


def test_paths_are_relative_to_where_one_stands(branch: Mounted) -> None:
    def named(*paths: str, cwd: Path) -> list[str]:
        done = agentfsd("diff", "-m", str(branch.path), "one", "--", *paths, cwd=cwd)
        return [line.split("\t")[1] for line in done.stdout.splitlines()]

    below = ["sub/deep/leaf", "sub/inner"]
    assert named(".", cwd=branch.path / "sub") == below
    assert named(".", cwd=branch.lower / "sub") == below
    assert named("../file", "inner", cwd=branch.subtree("one") / "sub") == ["file", "sub/inner"]
    assert named("sub/", cwd=Path("/")) == below
    assert named(f"{branch.path}/sub", f"{branch.lower}/tool", cwd=Path("/")) == [*below, "tool"]
    for outside in ("..", "/etc/passwd"):
        done = agentfsd("diff", "-m", str(branch.path), "one", "--", outside, check=False, cwd=branch.path)
        assert done.returncode == 1
        assert f"{outside} is outside of the workspace" in done.stderr


def test_a_path_through_a_link_to_the_workspace_is_understood(tmp_path: Path) -> None:
    (tmp_path / "real" / "sub").mkdir(parents=True)
    (tmp_path / "link").symlink_to("real")
    mount = locate.Mount(str(tmp_path / "real"), None)
    assert mount_finder.in_workspace(mount, os.fsencode(tmp_path / "link" / "sub" / "f\udcff")) == b"sub/f\xff"
    with pytest.raises(Refusal):
        mount_finder.in_workspace(mount, os.fsencode(tmp_path / "link"))


def test_a_ref_and_two_refs_with_and_without_paths(branch: Mounted) -> None:
    branch.cli("branch create", "two")
    assert b"-branch\n" in raw(branch, "-p", "one", "two", "--", "file")
    assert b"+branch\n" in raw(branch, "-p", "two", "one", "--", "file")
    assert raw(branch, "-p", "two") == b""
    assert b"\n@@ -1 +1,2 @@\n" in raw(branch, "-U0", "one", "--", "file")
    assert branch.cli("diff", "one", "two", "three", check=False).returncode == 2
    assert branch.cli("diff", "-U-1", "one", check=False).returncode == 2


def on_terminal(mounted: Mounted, *arguments: str, rows: int = 24, columns: int = 80, keys: bytes = b"", **extra: str) -> bytes:
    """What a person sees of `agentfsd diff`; *keys* are typed at once."""
    environment = {
        name: value
        for name, value in os.environ.items()
        if name not in ("PAGER", "AGENTFS_PAGER", "LESS", "NO_COLOR", "LINES", "COLUMNS")
    }
    environment |= {"TERM": "xterm", **extra}
    pid, terminal = pty.fork()
    if pid == 0:
        fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("4H", rows, columns, 0, 0))
        command = [*AGENTFSD, "diff", "-m", str(mounted.path), *arguments]
        os.execve(command[0], command, environment)
    os.write(terminal, keys)
    text = b""
    try:
        while chunk := os.read(terminal, 1 << 16):
            text += chunk
    except OSError:  # the other side is gone
        pass
    os.close(terminal)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0, text
    return text.replace(b"\r\n", b"\n")


def test_a_terminal_shows_colour_and_obeys_nothing_in_the_files(branch: Mounted) -> None:
    (branch.subtree("one") / "file").write_bytes(b"\x1b[2Jx\r\n\xe9\n")
    text = on_terminal(branch, "-p", "one", "--", "file")
    assert b"\x1b[1mdiff --git a/file b/file\x1b[m\n" in text
    assert b"\x1b[36m@@ -1 +1,2 @@\x1b[m\n" in text
    assert b"\x1b[31m-\x1b[m\x1b[31mlower\x1b[m\n" in text
    assert b"\x1b[32m+\x1b[m\x1b[32m^[[2Jx^M\x1b[m\n" in text
    assert b"\x1b[32m\\xe9\x1b[m\n" in text
    bare = on_terminal(branch, "-p", "one", "--color=never", "--", "file")
    assert PLAIN.sub(b"", text) == bare
    assert b"\x1b" not in bare
    assert on_terminal(branch, "-p", "one", "--", "file", NO_COLOR="1") == bare
    assert b"\x1b[32m+++\x1b[m" not in on_terminal(branch, "--stat", "one")
    assert b"\x1b[32m++\x1b[m\x1b[31m-\x1b[m" in on_terminal(branch, "--stat", "one", "--", "file")
    assert b"\x1b[1mdiff --git" in raw(branch, "-p", "one", "--color=always")


def test_a_terminal_shows_letters_in_colour_and_no_encoded_content(branch: Mounted) -> None:
    (branch.subtree("one") / "blob").write_bytes(bytes(range(256)))
    shown = on_terminal(branch, "one", "--", "blob", "file")
    assert b"\x1b[32mA\x1b[0m\tblob\n" in shown and b"\x1b[33mM\x1b[0m\tfile\n" in shown
    assert on_terminal(branch, "one", NO_COLOR="1") == raw(branch, "one")
    patch = on_terminal(branch, "-p", "one", "--color=never", "--", "blob")
    assert patch.endswith(b"\nBinary file, 0 -> 256 bytes\n") and b"literal" not in patch
    assert b"\nliteral 256\n" in raw(branch, "-p", "one", "--", "blob")


def test_what_is_longer_than_the_screen_goes_through_a_pager(branch: Mounted) -> None:
    (branch.subtree("one") / "file").write_text("".join(f"{number}\n" for number in range(5000)))
    arguments = ("-p", "one", "--", "file")
    pager = "sed 's/^/> /' | grep -v 77 | head -n 3; test \"$LESS\" = FRX && echo yes"
    text = PLAIN.sub(b"", on_terminal(branch, *arguments, AGENTFS_PAGER=pager, PAGER="false"))
    assert text.splitlines()[0] == b"> diff --git a/file b/file"
    assert text.splitlines()[3:] == [b"yes"]
    assert b">" not in on_terminal(branch, *arguments, AGENTFS_PAGER="sed 's/^/> /'", rows=6000).splitlines()[0]
    assert len(on_terminal(branch, *arguments, PAGER="cat").splitlines()) > 5000
    assert len(on_terminal(branch, "--no-pager", *arguments, PAGER="false").splitlines()) > 5000


def test_less_is_left_early(branch: Mounted) -> None:
    (branch.subtree("one") / "file").write_text("".join(f"{number}\n" for number in range(200_000)))
    text = on_terminal(branch, "-p", "one", "--", "file", keys=b"q")
    assert len(text.splitlines()) < 200


def rendered(code: str, name: bytes) -> list[str]:
    lines = code.splitlines()
    patch = f"diff --git a/x b/x\n@@ -0,0 +1,{len(lines)} @@\n" + "".join(f"+{line}\n" for line in lines)
    return list(patch_colours.coloured(patch.encode(), name))[2:]


def test_code_in_a_patch_is_coloured_by_its_language() -> None:
    shown = rendered('def f():\n    """one\n    def two"""\n    return 1  # three\n', b"src/x.py")
    assert shown[0].startswith("\x1b[32m+\x1b[m\x1b[32;1mdef\x1b[m")
    assert "\x1b[32;33m    def two" in shown[2]
    assert "\x1b[32;2;3m# three" in shown[3]
    assert [re.sub(r"\x1b\[[0-9;]*m", "", line) for line in shown][3] == "+    return 1  # three"
    assert rendered("def f():", b"x.unknown") == ["\x1b[32m+\x1b[m\x1b[32mdef f():\x1b[m"]


def test_lines_that_look_like_headers_are_lines_of_their_hunk() -> None:
    patch = b"diff --git a/x b/x\n@@ -1,2 +1,2 @@\n--- a/x\n+++ b/x\n same\n\\ No newline at end of file\ndiff --git a/y b/y\n"
    shown = list(patch_colours.coloured(patch, b"x"))
    assert shown[2].startswith("\x1b[31m-\x1b[m")
    assert shown[3].startswith("\x1b[32m+\x1b[m")
    assert shown[-1] == "\x1b[1mdiff --git a/y b/y\x1b[m"


def test_stat_fits_its_width() -> None:
    def patch(path: str, added: int, removed: int, **more: str) -> wire.FilePatch:
        return wire.FilePatch(
            status="M", path=path, added=added, removed=removed, is_binary=False, old_size=1, new_size=1,
            old_mode=0o100644, new_mode=0o100644, **more,
        )  # fmt: skip

    found = [patch("d/" * 60 + "name", 1000, 10), patch("a", 1, 0), patch("b", 0, 0, old_path="c")]
    lines = list(diff_views._stat_lines(found, 60, False))
    assert all(len(line) <= 60 for line in lines)
    assert lines[0].startswith(" ...d/d/")
    assert lines[0].rstrip().endswith("+-")
    assert "| " in lines[1] and lines[1].endswith("   1 +")
    assert lines[2].startswith(" c => b ")
    assert lines[3] == " 3 files changed, 1001 insertions(+), 10 deletions(-)"
    assert list(diff_views._stat_lines([], 60, False)) == []
    binary = msgspec.structs.replace(patch("d/" * 30, -1, -1), is_binary=True, old_mode=0, new_size=123_456)
    gone = msgspec.structs.replace(patch("e/" * 30, 0, 900), new_mode=0)
    lines = list(diff_views._stat_lines([binary, gone], 60, False))
    assert all(len(line) <= 60 for line in lines)
    assert lines[0].endswith("| Bin 1 -> 123456 bytes (new)")
    assert lines[1].endswith("- (gone)")


def test_the_client_library_gets_exact_paths_and_patches(branch: Mounted) -> None:
    with ControlClient.open_mount(str(branch.path)) as daemon:
        (found,) = daemon.patches("one", paths=[b"\xff \n"])
        assert found.path_bytes == b"\xff \n"
        assert b'"b/\\377 \\n"' in found.patch
        assert [change.path for change in daemon.diff("one", paths=["sub"])] == ["sub/deep/leaf", "sub/inner"]


def test_nobody_compares_for_a_client_that_has_gone(branch: Mounted) -> None:
    tasks = Path(f"/proc/{branch.record().pid}/task")

    def compares() -> bool:
        children = [pid for path in tasks.glob("*/children") for pid in path.read_text().split()]
        return any("mount_holder" not in Path(f"/proc/{pid}/cmdline").read_text() for pid in children)

    (branch.subtree("one") / "data").write_bytes(os.urandom(60 << 20))
    command = [*AGENTFSD, "diff", "-m", str(branch.path), "-p", "one"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as asking:
        wait_until(compares)
        asking.kill()
    wait_until(lambda: not compares(), 3)  # the comparison itself takes longer
    assert "file" in branch.cli("diff", "one", "--stat").stdout


def wait_until(condition: Callable[[], bool], seconds: float = 20) -> None:
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.002)


def test_white_space_is_ignored_on_request(mounted: Mounted) -> None:
    mounted.cli("branch create", "one")
    (mounted.subtree("one") / "spaced").write_text("one\ntwo\n")
    mounted.cli("branch create", "other", "--from", "one")
    (mounted.subtree("other") / "spaced").write_text("one \n  two\n")
    assert "+one " in mounted.cli("diff", "one", "other", "--patch").stdout
    assert mounted.cli("diff", "one", "other", "-w").stdout == ""
    assert mounted.cli("diff", "one", "other", "-w", "--stat").stdout == ""
    (mounted.subtree("other") / "spaced").write_text("one \n  2\n")
    shown = mounted.cli("diff", "one", "other", "-w").stdout.splitlines()
    assert [line for line in shown if line[:1] in "+-" and line[:3] not in ("+++", "---")] == ["-two", "+  2"]


@pytest.mark.parametrize("form", ["--name-status", "--stat", "--patch", "--json"])
def test_paths_that_match_a_pattern_are_left_out(mounted: Mounted, form: str) -> None:
    mounted.cli("branch create", "noisy")
    branch = mounted.subtree("noisy")
    (branch / "build").mkdir()
    for name in ("build/made.o", "wanted.c", "other.lock"):
        (branch / name).write_text("content\n")
    shown = mounted.cli("diff", "noisy", form, "--exclude", "*.lock", "--exclude", "build/**").stdout
    assert "wanted.c" in shown
    assert "made.o" not in shown
    assert "other.lock" not in shown


def test_a_commit_can_be_looked_at_before(mounted: Mounted) -> None:
    mounted.cli("branch create", "kept")
    (mounted.subtree("kept") / "fresh").write_text("a line\n")
    assert "fresh | 1 + (new)" in mounted.cli("commit", "kept", "--dry-run", "--stat").stdout
    assert "+a line" in mounted.cli("commit", "kept", "--dry-run", "--patch").stdout
    assert not (mounted.lower / "fresh").exists()
    refused = mounted.cli("commit", "kept", "--stat", check=False)
    assert (refused.returncode, "--dry-run" in refused.stderr) == (2, True)
    mounted.cli("branch create", "child", "--from", "kept")
    (mounted.subtree("child") / "more").write_text("")
    assert "fresh" not in mounted.cli("commit", "child", "--dry-run", "--stat").stdout


def test_words_are_shown_as_git_shows_them(tmp_path: Path) -> None:
    rng = random.Random(4)
    old, new = tmp_path / "old", tmp_path / "new"
    for _ in range(150):
        lines = [" ".join(rng.choice("abcdef") * rng.randrange(1, 3) for _ in range(rng.randrange(6))) for _ in range(12)]
        old.write_text("".join(f"{'  ' * rng.randrange(3)}{line}\n" for line in lines))
        for _ in range(rng.randrange(1, 5)):
            at = rng.randrange(len(lines))
            lines[at : at + rng.randrange(3)] = rng.choice([[], ["x y"], [lines[at].replace("a", "z w")], ["", "new", "a b c"]])
            lines = lines or ["left"]
        new.write_text("\n".join(lines) + "\n" * rng.randrange(2))

        def git(*options: str) -> bytes:
            command = ["git", "diff", "--no-index", "--no-indent-heuristic", *options, "old", "new"]
            return subprocess.run(command, capture_output=True, check=False, cwd=tmp_path).stdout

        for options, paint in (((), lambda _, text: text), (("--color",), patch_colours.styled)):
            shown = "\n".join(word_diff.lines(git(), paint))
            assert in_colour(shown) == in_colour(git("--word-diff", *options).decode().removesuffix("\n")), git().decode()


def in_colour(text: str) -> list[tuple[str, str]]:
    """What a terminal shows: each character with its colour."""
    style, shown = "", []
    for part in re.split("(\x1b\\[[0-9]*m)", text):
        if part.startswith("\x1b"):
            style = part
        else:
            shown += [(style.replace("\x1b[m", ""), char) for char in part]
    return shown


def test_words_of_a_branch_are_shown(branch: Mounted) -> None:
    (branch.subtree("one") / "sub" / "inner").write_text("inner and more\n\tx\x1b[2J\n")
    said = branch.cli("diff", "--word-diff", "one", "--", "sub", "link").stdout
    assert "inner {+and more+}\n" in said
    assert "{+\tx^[[2J+}" in said
    assert "\n[-leaf-]\n" in said
    assert "[-file-]{+sub/inner+}" in said
    assert "\x1b" not in said
    assert "\x1b[32m{+and more+}\x1b[m" in branch.cli("diff", "--word-diff", "--color", "always", "one").stdout
    refused = branch.cli("diff", "--word-diff", "--stat", "one", check=False)
    assert refused.returncode == 2
    assert "leave out --stat" in refused.stderr
