"""Rules by path as a program meets them: at the mount point, in a run of its own, over the socket, in snapshots.

One mount serves all tests here; each makes its own branch.
"""

import itertools
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agentfs_client import wire
from agentfs_client.control import ControlClient
from tests.mounted import AGENTFSD, Mounted, needs_fuse, needs_namespaces

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
    assert "processes in branch main; you are outside" in ruled.cli("rules test", ".env").stderr
    assert ruled.cli("rules test", "-b", "main", ".env").stderr == ""
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


def asking(mounted: Mounted, known: int = 0) -> dict[str, Any]:
    """Waits until a process asks; *known* questions do not count."""
    with ControlClient.connect(str(mounted.record().socket)) as client:
        question = client.list_asks(wait=True, known=list(range(known + 1)))[-1]
    return {"id": question.id, "path": question.path, "what": question.what, "branch": question.branch}


@pytest.mark.parametrize("view", ["pid", "namespace"])
def test_a_process_waits_for_the_answer_while_others_go_on(ruled: Mounted, view: str) -> None:
    branch = f"asks-{view}"
    ruled.cli("branch create", branch)
    ruled.cli("rules add", "-b", branch, "ask plain", "ask sub/new")
    script = """
os.chdir(sys.argv[1])
print(json.dumps([tried(read, 'plain'), tried(read, 'plain'), tried(write, 'sub/new', os.O_WRONLY | os.O_CREAT),
                  tried(write, 'sub/new', os.O_WRONLY | os.O_CREAT)]))
"""
    process = ruled.start(branch, sys.executable, "-c", HEAD + script, str(ruled.path), view=view, stdout=subprocess.PIPE)
    first = asking(ruled)
    assert (first["path"], first["what"], first["branch"]) == ("plain", "read", branch)
    assert ruled.sh(branch, "cat secrets/README") == "read me\n"
    assert ruled.run(branch, *AGENTFSD, "asks", "answer", str(first["id"]), "allow", check=False).returncode == 1
    assert ruled.cli("asks answer", str(first["id"]), "allow").stdout.startswith("allowed until that process ends: ")
    second = asking(ruled, first["id"])
    assert (second["path"], second["what"]) == ("sub/new", "change")
    ruled.cli("asks answer", str(second["id"]), "deny", "--for", "rule")
    assert json.loads(process.communicate(timeout=60)[0]) == ["plain\n", "plain\n", "EACCES", "EACCES"]
    assert "/sub/new" in {rule["pattern"] for rule in ruled.json("rules", "-b", branch)}
    other = ruled.start(branch, "cat", "plain", view=view, stdout=subprocess.PIPE)
    third = asking(ruled, second["id"])
    ruled.cli("asks answer", str(third["id"]), "allow", "--for", "session")
    assert other.communicate(timeout=60)[0] == "plain\n"
    assert ruled.run(branch, "cat", "plain", view=view).stdout == "plain\n"


def test_a_question_ends_by_time_and_with_the_process(ruled: Mounted) -> None:
    ruled.cli("branch create", "asks-late")
    ruled.cli("rules add", "-b", "asks-late", "ask plain")
    process = ruled.start("asks-late", "sh", "-c", "cat plain & wait; echo ended", view="namespace", stdout=subprocess.PIPE)
    asked = asking(ruled)
    with ControlClient.connect(str(ruled.record().socket)) as client:
        (question,) = client.list_asks()
        os.kill(question.pid, signal.SIGKILL)
        assert process.communicate(timeout=60)[0] == "ended\n"
        assert client.list_asks() == []
    assert ruled.cli("asks answer", str(asked["id"]), "allow", check=False).returncode == 1
    ruled.cli("policy set", "asks.timeout", "0.2")
    try:
        assert ruled.run("asks-late", "cat", "plain", check=False).returncode == 1
    finally:
        ruled.cli("policy set", "asks.timeout", "2m")


def test_over_the_socket_the_rules_are_the_same(ruled: Mounted) -> None:
    """The attacker speaks the protocol: files, patches, restores and descriptors, as a bound process and as one that obeys."""
    ruled.cli("branch create", "spoken")
    (ruled.subtree("spoken") / "my.key").write_text("changed\n")
    (ruled.subtree("spoken") / ".env").write_text("changed\n")
    ruled.cli("snapshot create", "-b", "spoken", "spoken-1")
    (ruled.subtree("spoken") / "my.key").write_text("again\n")
    script = """
from agentfs_client import wire
from agentfs_client.control import ControlClient
from agentfs_client.errors import AgentFSError
from agentfs_client import wire
def said(work, *args, **more):
    try: found = work(*args, **more)
    except AgentFSError as exc: return exc.code
    except OSError as exc: return errno.errorcode[exc.errno]
    return found.code if isinstance(found, wire.Error) else repr(found)
with ControlClient.connect(sys.argv[1]) as client:
    ask = lambda request: client.ask(request, wire.Reply)
    found = {
        'read': [said(ask, wire.FileOpen(path=path, read_bytes=99, branch=sys.argv[2] or None)) for path in ('my.key', '.env')],
        'past': [said(ask, wire.FileOpen(path=path, read_bytes=99, branch='spoken-1')) for path in ('my.key', '.env')],
        'list': said(ask, wire.FileList(path='', branch=sys.argv[2] or None)),
        'patch': said(client.patches, 'spoken'), 'diff': said(client.diff, 'spoken'),
        'rename': said(ask, wire.FileRename(path='secrets', to='mine', branch=sys.argv[2] or None)),
        'restore': said(client.restore, 'spoken-1', 'spoken'), 'rules': said(client.remove_rules, ['deny *.key']),
    }
print(json.dumps(found))
"""
    found = python(ruled, script, ruled.record().socket, "spoken", branch="spoken")
    assert found["read"] == found["past"] == ["EACCES", "ENOENT"]
    assert ".env" not in found["list"] and ".env" not in found["diff"] and "my.key" in found["diff"]
    assert "changed" not in found["patch"] and "again" not in found["patch"] and ".env" not in found["patch"]
    assert (found["rename"], found["restore"], found["rules"]) == ("EXDEV", "ruled", "outside-branch")
    with ControlClient.connect(str(ruled.record().socket)) as client:
        opening = wire.FileOpen(path="my.key", read_bytes=99, branch="spoken")
        assert client.ask(opening, wire.FileOpened).data == b"again\n"
        client.obey_rules("spoken")
        assert client.ask(opening, wire.Error).code == "EACCES"
        many = wire.FileContents(branch="spoken", raw_paths=[b"my.key", b".env", b"sub/../my.key"], most_bytes=99)
        assert client.ask(many, wire.ContentsReply).contents == [None] * 3
        names = wire.FileListings(branch="spoken", raw_paths=[b""])
        (listed,) = client.ask(names, wire.ListingsReply).listings
        assert listed is not None and b".env" not in {name.name for name in listed}
        details = wire.FileListings(branch="spoken", raw_paths=[b""], detailed=True)
        assert client.ask(details, wire.ListingsReply).listings == [None]


def test_an_export_in_a_branch_says_which_path_was_denied(ruled: Mounted, tmp_path: Path) -> None:
    ruled.cli("branch create", "exported")
    (ruled.subtree("exported") / "a.key").symlink_to("plain")
    for target in (tmp_path / "directory", tmp_path / "archive.zip"):
        inside = ["export", "exported", str(target)]
        done = ruled.run("exported", *AGENTFSD, *inside, check=False)
        assert done.returncode == 1
        assert "agentfsd: a.key: Permission denied; nothing was exported" in done.stderr
        assert "agentfsd rules test a.key" in done.stderr
        assert not target.exists()
    ruled.cli("export", "exported", str(tmp_path / "outside"))
    assert os.readlink(tmp_path / "outside" / "a.key") == "plain"


def test_paths_outside_the_workspace_are_covered(ruled: Mounted, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (".ssh/id_x", ".ssh/id_x.pub", ".aws/keys", ".profile", "other"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(SECRET)
    monkeypatch.setenv("HOME", str(tmp_path))
    ruled.cli("branch create", "outside")
    texts = ["deny ~/.ssh/id_*", "allow ~/.ssh/*.pub", f"hide /{tmp_path}/.aws/**", "ro ~/.profile"]
    ruled.cli("rules add", "-b", "outside", *texts)
    script = """
os.chdir(os.environ['HOME'])
print(json.dumps([tried(read, '.ssh/id_x'), tried(read, '.ssh/id_x.pub'), tried(os.listdir, '.aws'), tried(read, '.profile'),
                  tried(write, '.profile'), tried(write, 'other')]))
"""
    found = python(ruled, script, view="zero-message", branch="outside")
    assert found == ["", SECRET, [], SECRET, "EROFS", "done"]
    assert (tmp_path / ".profile").read_text() == (tmp_path / ".ssh" / "id_x").read_text() == SECRET
    said = ruled.run("outside", "true", view="pid").stderr
    assert "without a mount namespace" in said
