"""Random git commands, as agents give them: each a shell script that stands in the root of a workspace."""

import random

FILES = ["a", "b", "src/one", "src/two", "docs/index", "docs/deep/page", "lib/x/y"]


def command(chance: random.Random, who: str) -> tuple[str, str]:
    """(name, script)."""
    name = chance.choice(list(COMMANDS))
    return name, COMMANDS[name](chance, who)


def _edit(chance: random.Random, who: str) -> str:
    lines = []
    for _ in range(chance.randint(1, 3)):
        path = chance.choice([*FILES, f"{who}/{chance.randint(0, 3)}", f"shared/{who}-{chance.randint(0, 3)}"])
        number = chance.randint(0, 999)
        if chance.random() < 0.6:
            line = chance.randint(1, 20)
            lines.append(
                f"mkdir -p $(dirname {path}); test -s {path} || seq 20 > {path}; sed -i '{line}s/.*/{who} {number}/' {path}"
            )
        else:
            lines.append(f"mkdir -p $(dirname {path}); echo '{who} {number}' >> {path}")
    return "; ".join(lines)


def _commit(chance: random.Random, who: str) -> str:
    return f"{_edit(chance, who)}; git add -A; git commit -qm 'work of {who}'"


def _some_branch(chance: random.Random, who: str) -> str:
    return chance.choice(["main", "side", f"of-{who}", "topic"])


def _worktree(chance: random.Random, who: str) -> str:
    tree = f"wt-{who}-{chance.randint(0, 1)}"
    return chance.choice([
        f"git worktree add -q -f {tree} HEAD~0 --detach",
        f"git worktree add -q {tree} -b in-{tree}-{chance.randint(0, 99)}",
        f"cd {tree} && echo {chance.random()} > inside && git add -A && git commit -qm 'in a linked worktree'",
        f"git worktree remove --force {tree}",
        "git worktree prune",
    ])  # fmt: skip


def _submodule(chance: random.Random, who: str) -> str:
    place = f"sub-{who}"
    return chance.choice([
        f"git submodule --quiet add ./library.git {place} && git commit -qm 'adds a submodule'",
        f"cd {place} && test -e .git && echo {chance.random()} > inside && git add -A && git commit -qm 'in a submodule'",
        f"test -e {place}/.git && git add {place} && git commit -qm 'moves a submodule'",
    ])  # fmt: skip


COMMANDS = {
    "commit": _commit,
    "commit again": _commit,
    "commit once more": _commit,
    "commit of all at once": lambda c, w: f"{_edit(c, w)}; {_edit(c, w)}; git add -A; git commit -qm 'more of {w}'",
    "edit": _edit,
    "edit and stage": lambda c, w: f"{_edit(c, w)}; git add -A",
    "untracked": lambda c, w: (
        f"mkdir -p new-{w} shared; echo {c.random()} > new-{w}/{c.randint(0, 3)}; echo x > shared/u-{c.randint(0, 3)}"
    ),
    "amend": lambda c, w: f"{_edit(c, w)}; git add -A; git commit -q --amend --no-edit",
    "checkout -b": lambda c, w: f"git checkout -q -B of-{w} && {_commit(c, w)}",
    "checkout": lambda c, w: f"git checkout -q {_some_branch(c, w)}",
    "back to main": lambda c, w: "git checkout -q main",
    "branch": lambda c, w: f"git branch -f {_some_branch(c, w)} HEAD~{c.randint(0, 2)}",
    "branch -D": lambda c, w: f"git branch -D {_some_branch(c, w)}",
    "merge": lambda c, w: f"git merge -q --no-edit {_some_branch(c, w)}",
    "rebase": lambda c, w: f"git rebase -q {_some_branch(c, w)}",
    "rebase of the last ones": lambda c, w: f"git rebase -q -f HEAD~{c.randint(1, 2)}",
    "cherry-pick": lambda c, w: f"git cherry-pick {_some_branch(c, w)}",
    "reset": lambda c, w: "git reset -q --hard HEAD~1",
    "stash": lambda c, w: f"{_edit(c, w)}; git stash -q -u",
    "stash pop": lambda c, w: "git stash pop -q || git checkout -q -f HEAD",
    "gc": lambda c, w: "git gc -q",
    "repack": lambda c, w: f"git repack -q -d {c.choice(['', '-a -k', '-A'])}",
    "pack-refs": lambda c, w: "git pack-refs --all --prune",
    "tag": lambda c, w: f"git tag -f t-{c.randint(0, 5)} {c.choice(['', '-m x'])}",
    "tag -d": lambda c, w: f"git tag -d t-{c.randint(0, 5)}",
    "notes": lambda c, w: f"git notes add -f -m 'a note of {w}'",
    "worktree": _worktree,
    "worktree again": _worktree,
    "submodule": _submodule,
    "rm --cached": lambda c, w: f"git rm -q --cached {c.choice(FILES)} && git commit -qm 'untracks'",
    "rm --cached and removed": lambda c, w: f"f={c.choice(FILES)}; git rm -q --cached $f && git commit -qm 'untracks' && rm $f",
    "git rm": lambda c, w: f"git rm -q -f {c.choice(FILES)} && git commit -qm 'removes'",
    "rm": lambda c, w: f"rm -f {c.choice(FILES)}",
    "rm -r": lambda c, w: f"rm -rf {c.choice(['docs', 'src', 'lib', 'shared'])}",
    "rm -r and commit": lambda c, w: f"git rm -rqf {c.choice(['docs', 'src', 'lib'])} && git commit -qm 'removes a directory'",
    "mv": lambda c, w: f"git mv {c.choice(FILES)} moved-{w}-{c.randint(0, 3)} && git commit -qm 'moves'",
    "mkdir": lambda c, w: f"mkdir -p docs/empty-{c.randint(0, 3)} {w}",
    "reflog expire": lambda c, w: "git reflog expire --expire=now --all",
}
