"""The daemon is killed again and again while a run as an overlay changes files: the branch ends as a plain copy does."""

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

from agentfs_client import registry
from tests.compare import describe, differences
from tests.mounted import AGENTFSD, Mounted, needs_namespaces
from tests.rounds import rounds, seed

KILLS = rounds("kills of a daemon under an overlay", 3, 300)
TEN = rounds("times that ten branches run as overlays and are killed", 1, 20)
_BRANCHES = [f"b{number}" for number in range(10)]

# Changes the current directory for some seconds, in the same way for the same seed.
CHANGER = """
import os, random, shutil, sys, time
random, steps, pause_s = random.Random(int(sys.argv[1])), int(sys.argv[2]), float(sys.argv[3])

def pick(kind):
    found = []
    for place, directories, files in os.walk("."):
        if ".agentfs" in directories:
            directories.remove(".agentfs")
        found += [os.path.join(place, name) for name in (directories if kind == "d" else files)]
    return random.choice(sorted(found)) if found else None

def step(number):
    file, other, directory = pick("f"), pick("f"), pick("d") or "."
    what = random.choice("new new append append rewrite replace remove rename link mkdir move rmtree chmod symlink".split())
    if what == "new" or file is None:
        with open(os.path.join(directory, f"n{number}"), "w") as made:
            made.write(str(number) * random.randrange(300))
    elif what in ("append", "rewrite") and not os.path.islink(file):
        with open(file, "a" if what == "append" else "w") as changed:
            changed.write(f"{number} ")
    elif what == "replace":
        with open(f"t{number}", "w") as made:
            made.write(f"replaced {number}")
        os.rename(f"t{number}", file)
    elif what == "remove":
        os.unlink(file)
    elif what == "rename":
        os.rename(file, os.path.join(directory, f"r{number}"))
    elif what == "link" and not os.path.islink(file):
        os.link(file, os.path.join(directory, f"l{number}"), follow_symlinks=False)
    elif what == "mkdir":
        os.makedirs(os.path.join(directory, f"d{number}"))
    elif what == "move" and directory != ".":
        os.rename(directory, f"m{number}")
    elif what == "rmtree" and directory != "." and number % 5 == 0:
        shutil.rmtree(directory)
    elif what == "chmod" and not os.path.islink(file):
        os.chmod(file, random.choice([0o600, 0o644, 0o755]))
    elif what == "symlink":
        os.symlink(f"to{number}", os.path.join(directory, f"s{number}"))

print("begun", flush=True)
for number in range(steps):
    step(number)
    time.sleep(pause_s)
"""


def _fill(place: Path) -> None:
    for name in ("a/b/c", "d/e", "f"):
        (place / name).mkdir(parents=True)
    for number in range(30):
        (place / ("a", "a/b", "a/b/c", "d", "d/e", "f")[number % 6] / f"file{number}").write_text(f"lower {number}\n" * number)


def test_a_branch_ends_as_a_plain_copy_whatever_is_killed(make_mount: object, tmp_path: Path) -> None:
    needs_namespaces()
    lower, plain, changer = tmp_path / "lower", tmp_path / "plain", tmp_path / "changer.py"
    for place in (lower, plain):
        _fill(place)
    changer.write_text(CHANGER)
    mounted: Mounted = make_mount(lower)  # type: ignore[operator]
    mounted.cli("policy set", "retention.max_count", "5")
    mounted.cli("branch create", "b")
    steps, chance = max(120, 40 * KILLS), random.Random(seed())
    arguments = [str(changer), str(seed()), str(steps)]
    run = subprocess.Popen(
        [*AGENTFSD, "run", "--io", "overlay", "-b", "b", "--", sys.executable, *arguments, "0.015"],
        cwd=mounted.path, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    mounted.started.append(run)
    for kill in range(KILLS):
        time.sleep(chance.random() * 0.3)
        if kill % 3 == 1:
            mounted.cli("snapshot create", "-b", "b", check=False)
        elif kill % 3 == 2:
            subprocess.Popen([*AGENTFSD, "diff", "-m", str(mounted.path), "b"], stdout=subprocess.DEVNULL).communicate(timeout=60)
        _kill_the_daemon(mounted)
    assert run.wait(300) == 0, run.stderr.read() if run.stderr else ""
    subprocess.run([sys.executable, *arguments, "0"], cwd=plain, check=True, stdout=subprocess.DEVNULL)
    mounted.cli("diff", "b")
    found = describe(mounted.subtree("b"))
    assert differences(_without_directories_links(found), _without_directories_links(describe(plain))) == []
    assert mounted.fsck() == []


def test_ten_branches_end_as_plain_copies_whatever_is_killed(make_mount: object, tmp_path: Path) -> None:
    needs_namespaces()
    changer = tmp_path / "changer.py"
    changer.write_text(CHANGER)
    for number in range(TEN):
        base, chance = tmp_path / f"round{number}", random.Random(seed() * 1000 + number)
        base.mkdir()
        _fill(base / "lower")
        mounted: Mounted = make_mount(base / "lower")  # type: ignore[operator]
        runs = {branch: _start_changing(mounted, branch, changer, str(chance.randrange(10**6))) for branch in _BRANCHES}
        for _ in range(6):
            time.sleep(chance.random() * 0.7)
            _break_something(mounted, runs, chance)
        for branch, (run, arguments) in runs.items():
            _await_command(run)
            plain = base / branch
            _fill(plain)
            subprocess.run([sys.executable, *arguments, "0"], cwd=plain, check=True, stdout=subprocess.DEVNULL)
            mounted.cli("diff", branch)
            found, wanted = describe(mounted.subtree(branch)), describe(plain)
            assert differences(_without_directories_links(found), _without_directories_links(wanted)) == [], (number, branch)
        assert mounted.fsck() == []
        mounted.end()


def _start_changing(mounted: Mounted, branch: str, changer: Path, begin: str) -> tuple[subprocess.Popen[str], list[str]]:
    mounted.cli("branch create", branch)
    arguments = [str(changer), begin, "250"]
    command = [*AGENTFSD, "run", "--io", "overlay", "-b", branch, "--", sys.executable, *arguments, "0.03"]
    run = subprocess.Popen(
        command, cwd=mounted.path, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, start_new_session=True
    )
    mounted.started.append(run)
    assert run.stdout is not None and run.stdout.readline() == "begun\n"
    return run, arguments


def _break_something(mounted: Mounted, runs: dict[str, tuple[subprocess.Popen[str], list[str]]], chance: random.Random) -> None:
    """Kill the daemon, all that serves the mount, or what started one of the commands; or take a snapshot meanwhile."""
    branch = chance.choice(_BRANCHES)
    what = chance.choice(["daemon", "daemon", "all", "run", "snapshot", "diff"])
    if what == "daemon":
        _kill_the_daemon(mounted)
    elif what == "all":
        mounted.kill()
        mounted.mount()
    elif what == "run":
        runs[branch][0].kill()  # its command goes on
    elif what == "snapshot":
        mounted.cli("snapshot create", "-b", branch, check=False)
    else:
        mounted.cli("diff", branch, check=False)


def _await_command(run: subprocess.Popen[str]) -> None:
    """Wait until no process of a run lives: its own, or its command's, which is in the same session."""
    run.wait(120)
    until = time.monotonic() + 120
    while any(fields[3:4] == [b"%d" % run.pid] for fields in map(registry.stat_fields, _pids()) if fields[:1] != [b"Z"]):
        assert time.monotonic() < until, "the command of a run does not end"
        time.sleep(0.05)


def _pids() -> list[str]:
    return [name for name in os.listdir("/proc") if name.isdigit()]


def _kill_the_daemon(mounted: Mounted) -> None:
    """And wait for the next one, which this mounts itself once the keeper has given up: after too many kills in a minute."""
    until = time.monotonic() + 60
    while not (old := mounted.record()).keeper:
        assert time.monotonic() < until, "no keeper"
        time.sleep(0.005)
    os.kill(old.pid, signal.SIGKILL)
    while mounted.record().pid == old.pid or not mounted.record().serves():
        assert time.monotonic() < until, "no next daemon"
        if not mounted.record().alive():
            mounted.mount()
        time.sleep(0.02)


def _without_directories_links(found: dict[str, tuple[object, ...]]) -> dict[str, tuple[object, ...]]:
    return {path: what[:4] + what[5:] if str(what[0]).startswith("0o4") else what for path, what in found.items()}
