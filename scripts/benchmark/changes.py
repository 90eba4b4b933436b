"""What becomes of the changes in branches: their diff, one path restored, a merge, and the commit into the lower.

The plain directory does what one would do otherwise: two copies and diff, git, rsync into the original.
"""

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path

from benchmark import datasets
from benchmark.history import has_history, timed
from benchmark.measure import Measurement, Row, Scene
from benchmark.settings import Settings
from benchmark.site import program
from benchmark.worker import BenchError

_AGENTS = 10
_CHANGED = 10  # files, in each of the two that are compared
_GIT = ("-c", "user.name=a", "-c", "user.email=a@example.org", "-c", "gc.auto=0")
_NAMES = ("diff of two branches, names (bare: diff -rq)", "diff of two branches, names (bare: git diff of commits)")
_PATCHES = ("diff of two branches, patches (bare: diff -ruN)", "diff of two branches, patches (bare: git diff of commits)")
_RESTORE, _UNDO = "restore of one path (bare: cp -a)", "undo of that (bare: cp -a)"


def measurements(settings: Settings) -> list[Measurement]:
    commits = [_committing(count) for count in settings.committed]
    return [*commits, _comparing(settings), *[_merging(count) for count in settings.merged], _joining(settings)]


def _branch(scene: Scene, name: str) -> tuple[str, Path]:
    """A new branch without any process in it: its name, and the data set as it shows it."""
    full = f"{scene.view.branch}-{name}"
    scene.agentfs.control.create_branch(full)
    return full, scene.agentfs.mountpoint / ".agentfs/branches" / full / Path(scene.view.root).name


def _beside(scene: Scene, name: str) -> str:
    """A place for the plain directory's copies, which goes with the view."""
    return str(Path(scene.view.root).parent / name)


# -- commit into the lower --------------------------------------------------------------------------------------------


def _committing(count: int) -> Measurement:
    rows = tuple(Row(_commit_title(what, count), "ms") for what in ("new", "replaced"))
    return Measurement(
        f"commit-{count}", rows, f"small-{count}", lambda path, site: datasets.small(count, path), partial(_commit, count=count),
        fresh=True, why_not=has_history,
        about="files of 1 KiB; each side syncs the file system at its end. BranchFS publishes 35 ms for 1,000 files on a tmpfs, "
        "without a journal, a sync or a look at what moved in the lower",
    )  # fmt: skip


def _commit_title(what: str, count: int) -> str:
    return f"commit into the lower, {count:,} {what} files (bare: rsync -aHAX --delete, sync -f)"


def _commit(scene: Scene, count: int) -> Mapping[str, float]:
    work, end = (_rsync if scene.is_bare else _agentfs_commit)(scene)
    found = {}
    for what, operation in (("new", "create"), ("replaced", "first-write")):
        scene.site.command(scene.site.ops, operation, work, str(count))
        scene.stage.settle()
        scene.site.place.sync()
        found[_commit_title(what, count)] = timed(end)
    if not scene.is_bare:
        lower = scene.site.lower / Path(scene.view.root).name
        scene.site.command("find", str(lower), "-name", "new*", "-delete")
    return found


def _rsync(scene: Scene) -> tuple[str, Callable[[], object]]:
    work, lower = scene.view.root, _beside(scene, "lower")
    scene.run("cp", "-a", work, lower)
    command = f"'{program('rsync')}' -aHAX --delete '{work}/' '{lower}/' && sync -f '{lower}'"
    return work, lambda: scene.run("sh", "-c", command)


def _agentfs_commit(scene: Scene) -> tuple[str, Callable[[], object]]:
    name, work = _branch(scene, "work")

    def commit() -> None:
        if scene.agentfs.control.commit(name).conflicts:
            raise BenchError("the commit has conflicts")

    return str(work), commit


# -- diff, and restore of a path --------------------------------------------------------------------------------------


def _comparing(settings: Settings) -> Measurement:
    return Measurement(
        "compare", tuple(Row(title, "ms") for title in (*_NAMES, *_PATCHES, _RESTORE, _UNDO)), "wide", datasets.wide, _compare,
        prepare=_change_two, why_not=has_history,
        about=f"{_CHANGED} changes in each of two branches, over {settings.wide_files:,} files; bare: two copies of all, or two "
        "git commits, which somebody has made already",
    )  # fmt: skip


def _wide_names(scene: Scene, first: int) -> list[str]:
    count = scene.site.settings.wide_files
    return [datasets.wide_name(number) for number in range(first, count, count // _CHANGED)]


def _change_two(scene: Scene) -> None:
    if scene.is_bare:
        roots = [scene.view.root, _beside(scene, "second")]
        scene.run("cp", "-a", *roots)
        repository = _beside(scene, "repository")
        scene.run("cp", "-a", scene.view.root, repository)
        git = partial(_git, scene, repository)
        git("init", "-q", "-b", "base")
        git("add", "-A")
        git("commit", "-q", "-m", "base")
    else:
        roots = [str(_branch(scene, name)[1]) for name in ("first", "second")]
    for number, (name, root) in enumerate(zip(("first", "second"), roots, strict=True)):
        _write(root, _wide_names(scene, number), f"changed in {name}\n")
        if scene.is_bare:
            git("checkout", "-q", "-b", name, "base")
            _write(repository, _wide_names(scene, number), f"changed in {name}\n")
            git("commit", "-q", "-a", "-m", name)


def _write(root: str, names: Iterable[str], text: str) -> None:
    for name in names:
        Path(root, name).write_text(text)


def _git(scene: Scene, repository: str, *arguments: str) -> None:
    """Outside of what is timed."""
    scene.site.command(program("git"), *_GIT, *arguments, cwd=Path(repository))


def _compare(scene: Scene) -> Mapping[str, float]:
    return _bare_compare(scene) if scene.is_bare else _agentfs_compare(scene)


def _agentfs_compare(scene: Scene) -> dict[str, float]:
    control = scene.agentfs.control
    first, second = (f"{scene.view.branch}-{name}" for name in ("first", "second"))
    path = f"{Path(scene.view.root).name}/{_wide_names(scene, 1)[0]}"
    names, patches = timed(lambda: control.diff(second, first)), timed(lambda: control.patches(second, first))
    found = dict.fromkeys(_NAMES, names) | dict.fromkeys(_PATCHES, patches)
    found[_RESTORE] = timed(lambda: control.restore(second, first, [path]))
    found[_UNDO] = timed(control.undo)
    return found


def _bare_compare(scene: Scene) -> dict[str, float]:
    first, second, kept = scene.view.root, _beside(scene, "second"), _beside(scene, "kept")
    repository, git, name = _beside(scene, "repository"), program("git"), _wide_names(scene, 1)[0]
    scene.run("cp", "-a", f"{first}/{name}", kept)
    commands = {
        _NAMES[0]: f"diff -rq '{first}' '{second}'",
        _NAMES[1]: f"'{git}' -C '{repository}' diff --name-status first second",
        _PATCHES[0]: f"diff -ruN '{first}' '{second}'",
        _PATCHES[1]: f"'{git}' -C '{repository}' diff first second",
        _RESTORE: f"cp -a '{second}/{name}' '{first}/{name}'",
        _UNDO: f"cp -a '{kept}' '{first}/{name}'",
    }
    return {title: scene.run("sh", "-c", f"{command} >/dev/null; test $? -le 1") * 1000 for title, command in commands.items()}


# -- merge ------------------------------------------------------------------------------------------------------------


def _merging(count: int) -> Measurement:
    rows = tuple(Row(_merge_title(what, count), "ms") for what in ("other", "same"))
    return Measurement(
        f"merge-{count}", rows, "repository", datasets.repository, partial(_merge, count=count), warm_up=True,
        prepare=partial(_change_three, count=count), why_not=has_history,
        about="two branches, each changed in as many files: in others, or in the same ones at other lines. git writes objects "
        "alone; after agentfsd's merge the files are there",
    )  # fmt: skip


def _merge_title(what: str, count: int) -> str:
    return f"merge, {count:,} files in each, {what} files (bare: git merge-tree)"


def _change_three(scene: Scene, count: int) -> None:
    """``ours``, and two to merge into it."""
    modules = datasets.long_modules(scene.site)
    changes = {"ours": (modules[::2], 1), "other": (modules[1::2], 1), "same": (modules[::2], 40)}
    for name, (names, line) in changes.items():
        if scene.is_bare:
            root = scene.view.root
            _git(scene, root, "checkout", "-q", "-b", name, "first")
        else:
            root = str(_branch(scene, name)[1])
        for module in names[:count]:
            _edit(Path(root, module), line, name)
        if scene.is_bare:
            _git(scene, root, "commit", "-q", "-a", "-m", name)


def _edit(file: Path, line: int, word: str) -> None:
    lines = file.read_text().splitlines()
    lines[line] = f"/* {word} */"
    file.write_text("\n".join(lines) + "\n")


def _merge(scene: Scene, count: int) -> Mapping[str, float]:
    merge = _merge_tree if scene.is_bare else _agentfs_merge
    return {_merge_title(what, count): merge(scene, what) for what in ("other", "same")}


def _merge_tree(scene: Scene, source: str) -> float:
    _git(scene, scene.view.root, "prune", "--expire=now")  # what the last round has written
    return scene.run(program("git"), "merge-tree", "--write-tree", "ours", source) * 1000


def _agentfs_merge(scene: Scene, source: str) -> float:
    control, name = scene.agentfs.control, scene.view.branch
    control.create_branch(f"{name}-target", f"{name}-ours")
    taken_ms = timed(lambda: _merged(scene, f"{name}-{source}", f"{name}-target"))
    control.discard(f"{name}-target", keep=False)
    control.collect_garbage(forget_undo=True)
    return taken_ms


def _merged(scene: Scene, source: str, target: str) -> None:
    reply = scene.agentfs.control.merge([source], target)
    if reply.how != "merged" or reply.conflicts:
        raise BenchError(f"the merge: {reply.how}, {len(reply.conflicts)} conflicts")


# -- merge of histories -----------------------------------------------------------------------------------------------

_JOIN = f"merge of {_AGENTS} branches with a git commit each (bare: git merge, {_AGENTS} times)"


def _joining(settings: Settings) -> Measurement:
    return Measurement(
        "histories", (Row(_JOIN, "ms"),), "repository", datasets.repository, _join, prepare=_commit_as_agents, warm_up=True,
        why_not=has_history,
        about=f"each has changed its own tenth of {settings.repository_files:,} files and committed that with git",
    )  # fmt: skip


def _commit_as_agents(scene: Scene) -> None:
    names = sorted(str(path.relative_to(scene.view.root)) for path in Path(scene.view.root).rglob("*.c"))
    for number in range(_AGENTS):
        if scene.is_bare:
            root = scene.view.root
            _git(scene, root, "checkout", "-q", "-b", f"agent-{number}", "first")
        else:
            root = str(_branch(scene, f"agent-{number}")[1])
        for name in names[number::_AGENTS]:
            with Path(root, name).open("a") as file:
                file.write(f"/* agent {number} */\n")
        _git(scene, root, "commit", "-q", "-a", "-m", f"agent {number}")


def _join(scene: Scene) -> Mapping[str, float]:
    if scene.is_bare:
        _git(scene, scene.view.root, "checkout", "-q", "-B", "target", "first")
        git = f"'{program('git')}' {' '.join(_GIT)} -C '{scene.view.root}'"
        command = f"for n in $(seq 0 {_AGENTS - 1}); do {git} merge -q --no-edit agent-$n || exit; done"
        return {_JOIN: scene.run("sh", "-c", command) * 1000}
    control, name = scene.agentfs.control, scene.view.branch
    control.create_branch(f"{name}-target")
    sources = [f"{name}-agent-{number}" for number in range(_AGENTS)]
    taken_ms = timed(lambda: _joined(scene, sources, f"{name}-target"))
    control.discard(f"{name}-target", keep=False)
    control.collect_garbage(forget_undo=True)
    return {_JOIN: taken_ms}


def _joined(scene: Scene, sources: list[str], target: str) -> None:
    reply = scene.agentfs.control.merge(sources, target)
    if reply.merged != sources or reply.conflicts:
        raise BenchError(f"the merge: {reply.how}, {len(reply.conflicts)} conflicts")
