"""Rules by path as a program meets them: at the mount point, in a run of its own, over the socket, in snapshots.

One mount serves all tests here; each makes its own branch.
"""

import itertools
import json
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from tests.mounted import Mounted, needs_fuse, needs_namespaces

SECRET = "nobody's business\n"
RULES = ("hide .env*", "deny secrets/**", "deny *.key", "ro .git/hooks/**", "allow secrets/README")
FILES = {
    ".env": SECRET, "sub/.env.local": SECRET, "secrets/key": SECRET, "secrets/deep/key": SECRET, "secrets/README": "read me\n",
    "my.key": SECRET, ".git/hooks/pre-commit": "hook\n", "plain": "plain\n", "link.key": SECRET,
}  # fmt: skip
VIEWS = ("pid", "zero-message", "cached")

HEAD = """
import errno, json, os, sys
def tried(work, *args, **more):
    try: found = work(*args, **more)
    except OSError as exc: return errno.errorcode[exc.errno]
    return found if isinstance(found, (str, list)) else 'done'
def read(path, flags=os.O_RDONLY):
    fd = os.open(path, flags)
    try: return os.read(fd, 100).decode()
    finally: os.close(fd)
def write(path, flags=os.O_WRONLY):
    fd = os.open(path, flags, 0o600)
    try: os.write(fd, b'mine')
    finally: os.close(fd)
"""

_numbers = itertools.count()


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mounted]:
    needs_fuse()
    needs_namespaces()
    base = tmp_path_factory.mktemp("ruled")
    mounted = Mounted(base)
    for name, content in FILES.items():
        (mounted.lower / name).parent.mkdir(parents=True, exist_ok=True)
        (mounted.lower / name).write_text(content)
    (mounted.lower / "second-name").hardlink_to(mounted.lower / "link.key")
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("AGENTFS_RUNTIME_DIR", str(base / "run"))
        try:
            mounted.mount().cli("rules add", *RULES)
            yield mounted
        finally:
            patched.setenv("AGENTFS_RUNTIME_DIR", str(base / "run"))
            mounted.end()


@pytest.fixture
def ruled(shared: Mounted, monkeypatch: pytest.MonkeyPatch) -> Mounted:
    monkeypatch.setenv("AGENTFS_RUNTIME_DIR", str(shared.path.parent / "run"))
    return shared


def python(mounted: Mounted, script: str, *arguments: object, view: str = "pid", branch: str = "") -> Any:
    """Runs a script in a branch, a new one by default; what it prints, as JSON."""
    new = [] if branch else ["--new"]
    name = branch or f"b{next(_numbers)}"
    way = ["--no-namespace"] if view == "pid" else ["--io", view]
    command = ["-b", name, *new, *way, "--", sys.executable, "-c", HEAD + script, *map(str, arguments)]
    return json.loads(mounted.cli("run", *command).stdout)


@pytest.mark.parametrize("view", VIEWS)
def test_what_the_rules_keep_from_a_command(ruled: Mounted, view: str) -> None:
    script = """
os.chdir(sys.argv[1])
print(json.dumps({
    'hidden': [tried(os.stat, '.env'), tried(read, '.env'), tried(os.stat, 'sub/.env.local')],
    'listed': ['.env' in os.listdir('.'), os.listdir('sub'), sorted(os.listdir('secrets'))],
    'made': [tried(write, '.env', os.O_WRONLY | os.O_CREAT), tried(os.mkdir, 'sub/.env.d'), tried(os.rename, 'plain', '.envrc')],
    'denied': [tried(read, 'secrets/key'), tried(read, 'my.key'), tried(os.listdir, 'secrets/deep'),
               tried(read, 'secrets/deep/key')],
    'seen': [tried(os.stat, 'secrets/key'), tried(read, 'secrets/README')],
    'changed': [tried(write, 'secrets/key'), tried(os.chmod, 'secrets/key', 0o666), tried(os.unlink, 'my.key'),
                tried(os.truncate, 'my.key', 0), tried(write, 'secrets/new', os.O_WRONLY | os.O_CREAT)],
    'moved': [tried(os.rename, 'secrets', 'mine'), tried(os.rename, 'secrets/key', 'mine'), tried(os.link, 'my.key', 'mine'),
              tried(os.rename, '.git', 'git'), tried(os.symlink, '/tmp', '.git/hooks/x')],
    'read-only': [tried(read, '.git/hooks/pre-commit'), tried(write, '.git/hooks/new', os.O_WRONLY | os.O_CREAT),
                  tried(write, '.git/hooks/pre-commit'), tried(os.unlink, '.git/hooks/pre-commit'),
                  tried(os.utime, '.git/hooks/pre-commit')],
    'free': [tried(write, 'plain'), tried(read, 'plain'), tried(os.rename, 'plain', 'other'), tried(os.mkdir, 'new')],
}))
"""
    denied = "EACCES"
    found = python(ruled, script, ruled.path, view=view)
    assert found.pop("read-only")[0] == "hook\n" and found.pop("hidden") == ["ENOENT"] * 3
    assert found == {
        "listed": [False, [], ["README", "deep", "key"]],
        "made": [denied] * 3,
        "denied": [denied] * 4,
        "seen": ["done", "read me\n"],
        "changed": [denied] * 5,
        "moved": ["EXDEV", denied, denied, "EXDEV", "EROFS"],
        "free": ["done", "minen\n", "done", "done"],
    }


@pytest.mark.parametrize("view", ["pid", "zero-message"])
def test_what_is_read_only_stays_as_it_is(ruled: Mounted, view: str) -> None:
    script = """
os.chdir(sys.argv[1])
hook = '.git/hooks/pre-commit'
tries = [tried(write, hook), tried(write, hook, os.O_WRONLY | os.O_TRUNC), tried(os.unlink, hook), tried(os.chmod, hook, 0o777),
         tried(os.rename, 'plain', hook), tried(os.setxattr, hook, 'user.x', b'1'), tried(os.mkdir, '.git/hooks/d'),
         tried(os.rename, hook, 'mine'), tried(os.link, hook, 'mine'), tried(os.symlink, 'x', '.git/hooks')]
print(json.dumps([tries, read(hook)]))
"""
    tries, content = python(ruled, script, ruled.path, view=view)
    assert set(tries) <= {"EROFS", "EACCES", "EEXIST"} and content == "hook\n"  # an ordinary user gets the kernel's EACCES


def test_nobody_outside_all_branches_is_ruled_unless_everybody_is(ruled: Mounted) -> None:
    assert (ruled.path / ".env").read_text() == (ruled.path / "secrets" / "key").read_text() == SECRET
    ruled.cli("rules add", "--everybody", "hide second-*")
    assert not (ruled.path / "second-name").exists()
    ruled.cli("rules remove", "--everybody", "hide second-*")
    assert (ruled.path / "second-name").read_text() == SECRET


def test_what_others_have_looked_up_leads_round_no_rule(ruled: Mounted) -> None:
    """The person's look-ups fill the caches of the mount point; a bound process asks for the same names."""
    ruled.cli("branch create", "looked")
    ruled.cli("snapshot create", "-b", "looked", "a-point")
    snapshot = ruled.path / ".agentfs" / "snapshots" / "a-point"
    for root in (ruled.path, snapshot):
        assert (root / ".env").read_text() == SECRET and ".env" in {path.name for path in root.iterdir()}
    script = """
os.chdir(sys.argv[1])
names = ('.env', 'secrets/key', 'my.key', 'plain')
print(json.dumps([[tried(read, root + name) for name in names] + ['.env' in os.listdir(root or '.')]
                  for root in ('', '.agentfs/snapshots/a-point/')]))
"""
    for view in ("pid", "zero-message"):
        assert (
            python(ruled, script, ruled.path, view=view, branch="looked")
            == [["ENOENT", "EACCES", "EACCES", "plain\n", False]] * 2
        )
    assert (snapshot / ".env").read_text() == SECRET


def test_rules_that_come_later_hold_for_what_the_kernel_has_cached(ruled: Mounted) -> None:
    script = """
import subprocess
os.chdir(sys.argv[1])
before = [read('plain'), tried(os.stat, 'second-name'), 'plain' in os.listdir('.')]
print('ready', file=sys.stderr, flush=True); sys.stdin.readline()
print(json.dumps([before, tried(read, 'plain'), tried(os.stat, 'second-name'), 'second-name' in os.listdir('.')]))
"""
    ruled.cli("branch create", "later")
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    process = ruled.start("later", sys.executable, "-c", HEAD + script, str(ruled.path), view="namespace", **pipes)
    assert process.stderr is not None
    assert process.stderr.readline() == "ready\n"
    ruled.cli("rules add", "-b", "later", "deny plain", "hide second-*")
    out, _ = process.communicate("\n", timeout=60)
    assert json.loads(out) == [["plain\n", "done", True], "EACCES", "ENOENT", False]
    ruled.cli("branch create", "child", "--from", "later")
    assert {rule["pattern"] for rule in ruled.json("rules", "-b", "child") if rule["branch"] == "child"} == {"plain", "second-*"}
