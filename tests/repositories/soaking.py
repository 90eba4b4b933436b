"""Random git commands in branches of a real mount, random merges and commits, kills of the daemon, and what must hold then."""

import json
import random
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path

from tests.mounted import AGENTFSD, Mounted
from tests.repositories.agents import ENVIRONMENT
from tests.repositories.random_git import command

REAL = "the real directory"

# In a branch, `git gc` hides what only objects without a ref need of the real repository: git-histories.md, Known limits.
LOOK = r"""
export GIT_OPTIONAL_LOCKS=0
stashes=$(git rev-parse -q --verify refs/stash >/dev/null && git log -g --format=%H refs/stash --)
heads=$(cat .git/worktrees/*/HEAD 2>/dev/null | grep -v ref:)
echo @refs; git rev-list --all HEAD $stashes $heads 2>&1
echo @tips; git for-each-ref --format='%(objectname) %(refname)' 2>&1
echo "$(git symbolic-ref -q HEAD || git rev-parse HEAD)" HEAD
echo @files; find . -path ./.git -prune -o \( -type f -o -type l \) -print
echo @status; git status --porcelain --ignore-submodules=all 2>&1 || echo "failed: git status"
echo @under; for f in MERGE_HEAD CHERRY_PICK_HEAD rebase-merge rebase-apply sequencer; do test -e .git/$f && echo $f; done
echo @fsck; git fsck --strict --no-dangling --no-progress >/tmp/fsck-$$ 2>&1 || echo "failed: git fsck" >>/tmp/fsck-$$
if test -z "$REAL" && git fsck --strict --no-dangling --no-progress --connectivity-only >/dev/null 2>&1
then grep -Ev '^(broken link from  *tree|  *to  *(tree|blob)|missing (tree|blob)|failed: git fsck)' /tmp/fsck-$$
else cat /tmp/fsck-$$; fi; rm /tmp/fsck-$$
echo @trees
for w in wt-*; do test -e "$w/.git" || continue
  n=$(sed 's,.*/,,' "$w/.git"); test -e ".git/worktrees/$n" || { echo "$w: no .git/worktrees/$n"; continue; }
  git --git-dir=".git/worktrees/$n" --work-tree="$w" status --porcelain >/dev/null 2>/tmp/status-$$ ||
    { echo "$w:"; cat /tmp/status-$$; }
done; rm -f /tmp/status-$$
for s in sub-*; do test -e "$s/.git" || continue
  git -C "$s" status --porcelain >/dev/null 2>/tmp/status-$$ || { echo "$s:"; cat /tmp/status-$$; }
  git -C "$s" fsck --strict --no-dangling --no-progress 2>&1 || echo "$s: failed: git fsck"
done; rm -f /tmp/status-$$
echo @end
"""

SETUP = "".join(f"export {name}='{value}'; " for name, value in ENVIRONMENT.items() if name.startswith("GIT"))


@dataclass
class Look:
    """What git and find say of one place. ``commits``: those that refs and HEAD lead to."""

    commits: set[str] = field(default_factory=set)
    tips: dict[str, str] = field(default_factory=dict)
    files: set[str] = field(default_factory=set)
    status: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    texts: dict[str, str] = field(default_factory=dict)  # of files, where somebody asked for them

    @classmethod
    def read(cls, lines: list[str]) -> "Look":
        made, parts, part = cls(), dict[str, list[str]](), ""
        for line in lines:
            if line.startswith("@"):
                part = line[1:]
                parts[part] = []
            elif part:  # before it, `agentfsd run` may have said something
                parts[part].append(line)
        if "end" not in parts:
            made.wrong.append("no answer")
            return made
        made.commits = set(parts["refs"])
        made.tips = {name: oid for oid, _, name in (line.partition(" ") for line in parts["tips"])}
        made.files = {name.removeprefix("./") for name in parts["files"]}
        made.status = parts["status"]
        made.wrong = [
            *(line for line in parts["fsck"] if "gitmodulesParse" not in line),  # somebody committed one with conflict markers
            *parts["trees"],
            *(line for line in parts["status"] if line.startswith(("failed", "fatal", "error"))),
        ]
        made.wrong += [
            line for line in [*parts["refs"], *parts["tips"]] if not line[:40].isalnum() and not line.startswith("refs/")
        ]
        return made


class Soak:
    """An overlay with branches. *gone* and *removed*: commits and files that somebody took away on purpose, by branch."""

    def __init__(self, mounted: Mounted, names: list[str], chance: random.Random, log: Path) -> None:
        self.mounted, self.names, self.chance = mounted, names, chance
        self.gone: dict[str, set[str]] = {name: set() for name in [*names, REAL]}
        self.removed: dict[str, set[str]] = {name: set() for name in [*names, REAL]}
        self.counts: dict[str, int] = {}
        self._log, self._shells = log, dict[str, subprocess.Popen[str]]()
        for name in names:
            mounted.cli("branch create", name)

    def note(self, text: str) -> None:
        with self._log.open("a") as file:
            print(text, file=file)

    def count(self, what: str) -> None:
        self.counts[what] = self.counts.get(what, 0) + 1

    # -- looking

    def look(self, name: str) -> Look:
        return self._looks(name, LOOK)[0]

    def _looks(self, name: str, script: str) -> list[Look]:
        said = self._run(name, SETUP + script)
        found = [Look.read([*part.splitlines(), "@end"]) for part in said.split("@end\n")[:-1]]
        assert found, f"{name}: {said}"
        return found

    def _run(self, name: str, script: str) -> str:
        """What a script says that stands in a branch or the real directory. A branch's shell lives on for the next one."""
        file = self._log.with_name("script")
        file.write_text(script)
        if name == REAL:
            done = subprocess.run(
                ["sh", file], cwd=self.mounted.lower, env=ENVIRONMENT | {"REAL": "1"}, capture_output=True, text=True, check=False
            )
            return done.stdout
        if name not in self._shells:
            self._shells[name] = self.mounted.start(
                name, "sh", view="namespace", stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
            )
        shell = self._shells[name]
        assert shell.stdin is not None
        assert shell.stdout is not None
        shell.stdin.write(f"sh {file} 2>/dev/null; echo @@over\n")
        shell.stdin.flush()
        lines = []
        for line in shell.stdout:
            if line == "@@over\n":
                return "".join(lines)
            lines.append(line)
        raise AssertionError(f"the shell in {name} ended: {lines[-20:]}")

    def leave(self, names: list[str]) -> None:
        """Lets no process be in branches."""
        for name in names:
            shell = self._shells.pop(name, None)
            if shell is not None:
                shell.communicate()

    def expect_sound(self, name: str, look: Look, after: str) -> None:
        assert not look.wrong, f"{name} after {after}: {look.wrong[:20]}"

    # -- what happens

    def work(self) -> None:
        """Somebody uses git in a branch."""
        name = self.chance.choice(self.names)
        kind, script = command(self.chance, name)
        self.note(f"-- {name}: {kind}\n{script}")
        again = "git rebase --abort; git merge --abort; git cherry-pick --abort; git am --abort; "
        wrapped = f"{LOOK}\n( {script} ) </dev/null >>{self._log} 2>&1 || ( {again} ) >>{self._log} 2>&1\n"
        before, after = self._looks(name, f"{wrapped}{LOOK}\n")
        self.count(kind)
        self.expect_sound(name, before, f"before {kind}")
        self.expect_sound(name, after, kind)
        self.gone[name] = (self.gone[name] | (before.commits - after.commits)) - after.commits
        self.removed[name] = (self.removed[name] | (before.files - after.files)) - after.files

    def merge(self, *, kill: bool = False) -> None:
        target, *sources = self.chance.sample(self.names, min(self.chance.choice([2, 2, 3]), len(self.names)))
        rule = self.chance.choice([[], [], [], ["--theirs"], ["--ours"], ["--rebase"], ["--squash"], ["--as-branches"]])
        self.note(f"-- merge {sources} into {target} {rule} {'killed' * kill}")
        before = {name: self.look(name) for name in [target, *sources, REAL]}
        for name, look in before.items():
            self.expect_sound(name, look, "before a merge")
        if self.chance.random() < 0.5:
            self.leave([target, *sources])
        before[target].texts = self._texts(target, before[target].files)
        said, merged = self._agentfsd("merge", *sources, "--into", target, *rule, kill=kill)
        after = self.look(target)
        self.note(said)
        what = f"merge {sources} {rule}: {said}"
        self.expect_sound(target, after, what)
        taken = [name for name in sources if f"merged {name}" in said or (merged and f"left {name}" not in said)]
        self._expect_nothing_lost(
            target, before, after, sources, what, all_of=taken if rule in ([], ["--theirs"], ["--ours"]) else []
        )
        for source in sources:
            replaced = before[source].commits if {"--squash", "--rebase"} & {*rule} else set()
            self.gone[target] = (self.gone[target] | self.gone[source] | replaced) - after.commits
            self.removed[target] = (self.removed[target] | self.removed[source]) - after.files
        self.count("merges" if merged else "merges refused")

    def commit(self, *, kill: bool = False) -> None:
        name = self.chance.choice(self.names)
        rule = self.chance.choice([[], ["--merge"], ["--merge"], ["--merge"], ["--force"], ["--as-branches"]])
        self.note(f"-- commit {name} {rule} {'killed' * kill}")
        before = {one: self.look(one) for one in (name, REAL)}
        if self.chance.random() < 0.5:
            self.leave([name])
        before[REAL].texts = self._texts(REAL, before[REAL].files)
        said, done = self._agentfsd("commit", name, "--hooks", *rule, kill=kill)
        if kill:
            ending = self.chance.choice(["--resume", "--abort"])
            said += self.mounted.cli("commit", ending, check=False).stderr
        self.note(said)
        what = f"commit {name} {rule}: {said}"
        after = self.look(REAL)
        self.expect_sound(REAL, after, what)
        self._expect_nothing_lost(
            REAL, before, after, [name], what, all_of=[name] if done and not kill and "--as-branches" not in rule else []
        )
        if done or kill:
            self.gone[REAL] = (self.gone[REAL] | self.gone[name]) - after.commits
            self.removed[REAL] = (self.removed[REAL] | self.removed[name]) - after.files
        self.count("commits" if done else "commits refused")

    def _agentfsd(self, *arguments: str, kill: bool) -> tuple[str, bool]:
        if not kill:
            done = self.mounted.cli(arguments[0], *arguments[1:], "--json", check=False)
            assert "internal error" not in done.stderr, done.stderr
            assert "Traceback" not in done.stderr, done.stderr
            assert "has gone" not in done.stderr, done.stderr  # a file of the real directory that a branch had only renamed
            return _told(done), done.returncode == 0
        process = subprocess.Popen(
            [*AGENTFSD, arguments[0], "-m", str(self.mounted.path), *arguments[1:], "--json"],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        deadline = time.monotonic() + self.chance.uniform(0.5, 3)
        while process.poll() is None and not self._journal() and time.monotonic() < deadline:
            time.sleep(0.002)
        time.sleep(self.chance.uniform(0, 0.06))
        self.count("kills of a commit that had begun" if self._journal() else "kills")
        self.mounted.kill()
        said = _told(subprocess.CompletedProcess(process.args, 0, *process.communicate()))
        for shell in self._shells.values():
            shell.kill()
            shell.communicate()
        self._shells.clear()
        self.mounted.mount()
        return said, False

    def _journal(self) -> bool:
        return any(self.mounted.state.glob("commit.*"))

    def _expect_nothing_lost(
        self, place: str, before: dict[str, Look], after: Look, sources: list[str], what: str, all_of: list[str]
    ) -> None:
        meant = self.gone[place].union(*(self.gone[name] for name in [REAL, *sources]))  # branches show REAL's, too
        real = before[REAL]  # what a branch shows of it is no change of the branch
        gone = before[place].commits.union(*(before[name].commits - real.commits for name in all_of)) - after.commits - meant
        assert not gone, f"{place}: unreachable after {what}: {gone}"
        meant = self.removed[place].union(*(self.removed[name] for name in [REAL, *sources]))  # branches show REAL's, too
        gone = before[place].files.union(*(before[name].files - real.files for name in all_of)) - after.files - meant
        decided = _decided(what)
        if decided & after.files:  # a file that was moved to two names has the other one
            kept = decided & after.files
            mine = before[place].texts
            had = {name: [mine.get(name, ""), *(self._text(one, name) for one in all_of)] for name in gone & decided}
            dropped = {name for name in had if name.startswith("moved-") or self._lives_on(had[name], place, kept)}
            dropped |= {name for name in gone if self._is_as_one_of({self._text(one, name) for one in all_of}, place, kept)}
            self.removed[place] |= dropped  # and a later merge takes that over
            gone -= dropped
        if gone:
            dropped = self._git_drops(gone, place, [before[name] for name in [place, *all_of]])
            self.removed[place] |= dropped
            gone -= dropped
        assert not gone, f"{place}: files gone after {what}: {gone}"
        tidy = all(not _of_files(before[name].status) for name in [place, *all_of])
        if "no commit in common" in what:
            return  # their files come as uncommitted changes
        if tidy and all_of and len({before[name].tips.get("HEAD") for name in [place, *all_of]}) == 1:
            here = all(name.startswith("refs/") for name in [before[place].tips.get("HEAD", "")])
            removed = set[str]().union(*(self.removed[name] for name in [place, *all_of]))
            meant = {f" D {name}" for name in removed}  # not tracked then, and committed by the other one
            untracked = [line[3:] for name in all_of for line in before[name].status if line.startswith("?? ")]
            meant |= {f" M {name}" for name in decided if any(_is_in(name, one) for one in untracked)}  # uncommitted there
            wrong = [line for line in _of_files(after.status) if line not in meant]
            assert not here or not wrong, f"{place}: not clean after {what}: {after.status}"

    def everybody(self) -> None:
        """Looks at all branches and the real directory."""
        for name in [*self.names, REAL]:
            self.expect_sound(name, self.look(name), "all that happened")
        assert not (faults := self.mounted.fsck()), faults

    def step(self) -> None:
        what = self.chance.choices(["work", "merge", "commit", "kill merge", "kill commit"], [60, 16, 10, 1, 3])[0]
        if what == "work":
            self.work()
        elif what.endswith("merge"):
            self.merge(kill=what.startswith("kill"))
        else:
            self.commit(kill=what.startswith("kill"))

    def _lives_on(self, texts: list[str], place: str, kept: set[str]) -> bool:
        """Whether one of these files, which a side had, is like one that was kept: git takes both for a third file, renamed."""
        for text in texts:
            lines = set(text.splitlines())
            if any(lines and 2 * len(lines & set(self._text(place, other).splitlines())) >= len(lines) for other in kept):
                return True
        return False

    def _git_drops(self, gone: set[str], place: str, before: list[Look]) -> set[str]:
        """Those of the files that git's own merge of two of the commits leaves out.

        A file that one side removed and added again is as in a base of both, so the other side's removal of it holds.
        """
        mine, *theirs = [look.tips.get(look.tips.get("HEAD", ""), look.tips.get("HEAD", "")) for look in before]
        dropped = set[str]()
        for other in theirs:
            tree = f"$(git merge-tree --write-tree {mine} {other} | head -n 1)"
            said = self._run(place, f"git -c core.quotepath=off ls-tree -r --name-only {tree} && echo @listed\n").splitlines()
            if said and said[-1] == "@listed":
                dropped |= gone - {*said}
        return dropped

    def _is_as_one_of(self, texts: set[str], place: str, kept: set[str]) -> bool:
        """Whether a file that a side had is one that was kept: git moves a new file along with a directory that was renamed."""
        return any(self._text(place, other) in texts - {""} for other in kept)

    def _texts(self, place: str, names: set[str]) -> dict[str, str]:
        return {name: self._text(place, name) for name in names if not name.startswith("library.git/")}

    def _text(self, place: str, name: str) -> str:
        path = (self.mounted.lower if place == REAL else self.mounted.subtree(place)) / name
        return path.read_text(errors="replace") if path.is_file() else ""


def _told(done: subprocess.CompletedProcess[str]) -> str:
    """What a merge or commit has told. As text it names only the first conflicts that a side decided."""
    if not done.stdout:
        return done.stderr
    reply = json.loads(done.stdout)
    lines = [*reply["said"], *(f"merged {name}" for name in reply["merged"]), *(f"left {name}" for name in reply["left"])]
    lines += [f"conflict {found['kind']} {found['path']}: {found['message']}" for found in reply["conflicts"]]
    lines += [f"decided for {reply['into']}: " + ", ".join(each["path"] for each in reply["decided"])] * bool(reply["decided"])
    return done.stderr + "".join(f" {line}\n" for line in lines)


def _decided(said: str) -> set[str]:
    """The paths of the conflicts that --ours or --theirs decided, as the command has told them."""
    lines = [line for line in said.splitlines() if " decided for " in line]
    return {name for line in lines for name in line.rpartition(": ")[2].split(", ")}


def _is_in(name: str, shown: str) -> bool:
    """Whether *shown*, as git's status names it, is the file or a directory above it."""
    return name == shown or (shown.endswith("/") and name.startswith(shown))


def _of_files(status: list[str]) -> list[str]:
    return [line for line in status if not line.startswith("??")]
