"""Snapshots, branches, restore and diff at many changed files; mounting such a state; the daemon's memory.

What a plain directory offers instead is the baseline: cp -a for a snapshot or a branch, rm -rf for its end.
"""

import json
import sys
import time
from collections.abc import Callable, Mapping
from functools import partial

from benchmark import datasets
from benchmark.agentfs import Agentfs, AgentfsStage
from benchmark.measure import Measurement, NotApplicable, Row, Scene
from benchmark.settings import MIB, Settings
from benchmark.site import AGENTFSD
from benchmark.targets import Target

_FEW_ROUNDS = 3
_MANY = 20_000
_MORE_BRANCHES = 50
_HISTORY = {
    "diff": "diff (bare: diff -r)",
    "snapshot": "snapshot (bare: cp -a)",
    "branch": "branch create (bare: cp -a)",
    "cli": "branch create by command (bare: cp -a)",
    "restore": "restore (bare: rm -rf, cp -a)",
    "delete": "branch delete (bare: rm -rf)",
}
_COMMAND = {
    f"agentfsd {words} (bare: python -c pass)": words.split()
    for words in ("--version", "status", "branch list", "snapshot create")
}
_HOOKS = {  # after a call that changed three files, one of them ignored
    "outside git": "agentfsd hook after-tool (bare: python -c pass)",
    "git": "agentfsd hook after-tool in a git repository (bare: python -c pass)",
}
_KILLED, _REPLACED = "longest wait, daemon killed", "longest wait, agentfsd restart"
_MEMORY = {
    "start": Row("memory: daemon after the mount", "MiB"),
    "seen": Row("memory: per file looked at", "bytes"),
    "made": Row("memory: per file created", "bytes"),
    "branch": Row("memory: per branch", "KiB"),
}


def measurements(settings: Settings) -> list[Measurement]:
    mounting = _mounting(settings.most_changed)
    return [*map(_history, settings.changed), _starting(), _hooking(), mounting, _going_on(), _remembering()]


def _once_per_daemon(target: Target, bare: str = "") -> str:
    if isinstance(target, Agentfs) and not target.is_plain:
        return "does not depend on the view: see run"
    return bare if target.name == "bare" else ""


def has_history(target: Target) -> str:
    if isinstance(target, Agentfs) or target.name == "bare":
        return _once_per_daemon(target)
    return "has no snapshots and branches"


def timed(work: Callable[[], object]) -> float:
    """Milliseconds."""
    begin = time.perf_counter()
    work()
    return (time.perf_counter() - begin) * 1000


# -- snapshots and branches -------------------------------------------------------------------------------------------


def _history(count: int) -> Measurement:
    rows = tuple(Row(_title(key, count), "ms") for key in _HISTORY)
    return Measurement(
        f"history-{count}", rows, "empty", datasets.empty, partial(_sample, count=count), fresh=True, why_not=has_history,
        rounds=1_000 if count < _MANY else _FEW_ROUNDS,
    )  # fmt: skip


def _title(key: str, count: int) -> str:
    return f"{_HISTORY[key]}, {count:,} files"


def _sample(scene: Scene, count: int) -> Mapping[str, float]:
    take = _bare_history if scene.is_bare else _agentfs_history
    return {_title(key, count): value for key, value in take(scene, count).items()}


def _agentfs_history(scene: Scene, count: int) -> dict[str, float]:
    """One after the other on a branch with *count* changes in its head; when it is deleted, nobody else holds them."""
    daemon, name = scene.agentfs, f"{scene.view.branch}-work"
    control, mountpoint = daemon.control, str(daemon.mountpoint)
    empty, full, first, second = (f"{name}-{suffix}" for suffix in ("empty", "full", "1", "2"))
    control.create_branch(name)
    control.create_snapshot(branch=name, name=empty)
    scene.site.command(scene.site.ops, "fill", f"{mountpoint}/.agentfs/branches/{name}/empty", str(count))
    found = {"diff": timed(lambda: control.diff(name))}
    found["snapshot"] = timed(lambda: control.create_snapshot(branch=name, name=full))
    found["branch"] = timed(lambda: control.create_branch(first, name))
    found["cli"] = timed(lambda: daemon.cli("branch", "create", "-m", mountpoint, second, "--from", name))
    found["restore"] = timed(lambda: control.restore(empty, name))
    control.restore(full, name)
    for branch in (first, second):
        control.discard(branch)
    for snapshot in (full, empty):
        control.delete_snapshot(snapshot)
    found["delete"] = timed(lambda: control.discard(name))
    return found


def _bare_history(scene: Scene, count: int) -> dict[str, float]:
    root = scene.view.root
    work, empty, copy = (f"{root}/{name}" for name in ("work", "nothing", "copy"))
    scene.run("mkdir", work, empty)
    scene.ops("fill", work, count)
    found = {"diff": scene.run("sh", "-c", f"diff -rqN '{empty}' '{work}' >/dev/null; test $? -le 1") * 1000}
    found["snapshot"] = found["branch"] = found["cli"] = scene.run("cp", "-a", work, copy) * 1000
    found["delete"] = scene.run("rm", "-rf", work) * 1000
    found["restore"] = found["delete"] + scene.run("cp", "-a", copy, work) * 1000
    return found


# -- what a hook pays for one command ---------------------------------------------------------------------------------


def _starting() -> Measurement:
    return Measurement(
        "command", tuple(Row(title, "ms") for title in _COMMAND), "empty", datasets.empty, _start, why_not=has_history,
        about="how long a command takes to start; in a development install, Python itself takes three times as long",
    )  # fmt: skip


def _start(scene: Scene) -> Mapping[str, float]:
    def bare() -> object:
        return scene.site.command(sys.executable, "-c", "pass")

    if scene.is_bare:
        return {title: timed(bare) for title in _COMMAND}
    daemon, place = scene.agentfs, ["-m", str(scene.agentfs.mountpoint)]
    return {
        title: timed(partial(daemon.cli, *words, *([] if words == ["--version"] else place))) for title, words in _COMMAND.items()
    }


# -- what an agent waits for after each call of a tool ----------------------------------------------------------------


def _hooking() -> Measurement:
    return Measurement(
        "hook", tuple(Row(title, "ms") for title in _HOOKS.values()), "empty", datasets.empty, _hook, why_not=_has_hooks,
        about="the time of the hook that tells a model what its call has changed",
    )  # fmt: skip


def _has_hooks(target: Target) -> str:
    return "" if target.name in ("run", "bare") else "does not depend on the view: see run"


def _hook(scene: Scene) -> Mapping[str, float]:
    if scene.is_bare:
        return dict.fromkeys(_HOOKS.values(), scene.run(sys.executable, "-c", "pass") * 1000)
    found = {}
    for place, title in _HOOKS.items():
        begin = "git init -q; echo '*.o' >.gitignore" if place == "git" else ":"
        call = json.dumps({"session_id": f"bench {place}", "tool_name": "Bash", "tool_use_id": str(time.time_ns())})
        hook = f"cd '{scene.view.root}' && {AGENTFSD} hook %s --for codex >/dev/null <<'.'\n{call}\n.\n"
        scene.run("sh", "-c", f"cd '{scene.view.root}' && {begin}")
        scene.run("sh", "-c", hook % "before-tool" + "for name in one two three.o; do date >$name; done")
        found[title] = scene.run("sh", "-c", hook % "after-tool") * 1000
    return found


# -- mounting, and memory ---------------------------------------------------------------------------------------------


def _mounting(count: int) -> Measurement:
    row = Row(f"mount with {count:,} changed files", "ms")
    return Measurement(
        "mount", (row,), "empty", datasets.empty, partial(_mount, title=row.title), prepare=_fill_most, own_stage=True,
        why_not=partial(_once_per_daemon, bare="needs no mount"),
    )  # fmt: skip


def _going_on() -> Measurement:
    rows = (Row(_KILLED, "ms"), Row(_REPLACED, "ms"))
    return Measurement(
        "pause", rows, "empty", datasets.empty, _pause, prepare=_fill_most, own_stage=True, rounds=_FEW_ROUNDS,
        why_not=partial(_once_per_daemon, bare="has no daemon"),
    )  # fmt: skip


def _pause(scene: Scene) -> Mapping[str, float]:
    stage = scene.stage
    if not isinstance(stage, AgentfsStage):
        raise NotApplicable("has no daemon of ours")
    return {_KILLED: stage.pause(killed=True) * 1000, _REPLACED: stage.pause(killed=False) * 1000}


def _remembering() -> Measurement:
    return Measurement(
        "memory", tuple(_MEMORY.values()), "tree", datasets.tree, _memory, rounds=1, own_stage=True,
        why_not=partial(_once_per_daemon, bare="has no daemon"),
    )  # fmt: skip


def _fill_most(scene: Scene) -> None:
    scene.ops("fill", scene.view.root, scene.site.settings.most_changed)
    scene.view.worker.close()  # it would keep the mount busy


def _mount(scene: Scene, title: str) -> Mapping[str, float]:
    return {title: scene.stage.remount() * 1000}


def _memory(scene: Scene) -> Mapping[str, float]:
    settings, root = scene.site.settings, scene.view.root
    start = _rss(scene)
    scene.ops("walk", root, 0)
    seen = _rss(scene)
    scene.run("mkdir", f"{root}/new")
    scene.ops("fill", f"{root}/new", settings.tree_files)
    made = _rss(scene)
    found = {
        "start": start / MIB, "seen": (seen - start) / settings.tree_files, "made": (made - seen) / settings.tree_files,
    }  # fmt: skip
    if isinstance(scene.stage, AgentfsStage):
        for number in range(_MORE_BRANCHES):
            scene.agentfs.control.create_branch(f"more-{number}")
        found["branch"] = (_rss(scene) - made) / _MORE_BRANCHES / 1024
    return {_MEMORY[key].title: value for key, value in found.items()}


def _rss(scene: Scene) -> int:
    found = scene.stage.rss_bytes()
    if not found:
        raise NotApplicable("is in the kernel")
    return found
