"""Read and create commits and trees in a workshop, and merge two commits, with git. It knows no refs and no working files."""

import hashlib
import os
import re
import time
import zlib
from dataclasses import dataclass, field
from typing import NamedTuple

from agentfsd.repositories.merge_attributes import BY_LINES, rules_of
from agentfsd.repositories.workshop import GitFailed, Workshop

_CONFLICT = re.compile(r"CONFLICT \(([^)]*)\):? *(.*)", re.DOTALL)
_KINDS = {
    "contents": "content", "file/directory": "type", "distinct types": "type", "distinct modes": "type",
    "rename involved in collision": "rename/add",
}  # fmt: skip
NEW_NAMES = ("rename/delete", "file location")  # the kinds of conflicts about a name that only one side has, and no side deleted
_UNREADABLE = re.compile(r"(?:Could not read|bad object|missing commit) ([0-9a-f]{40,64})")
_PLAIN_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")  # what git takes for a branch's name, and nothing else


class Entry(NamedTuple):
    """An entry of a tree or index: git's mode in octal digits, and an object id. Both are empty if there is no entry."""

    mode: bytes = b""
    oid: bytes = b""


NOTHING = Entry()


class Difference(NamedTuple):
    """The entries of two trees at one path."""

    old: Entry
    new: Entry


_IN_WORDS = {
    "content": "both sides changed the same lines", "add/add": "added on both sides", "binary": "changed on both sides",
    "rename/add": "one side renamed a file to this name, the other side has another file there",
}  # fmt: skip


class Clash(NamedTuple):
    """A path that git could not merge. ``message`` is git's message without "CONFLICT"."""

    path: bytes
    kind: str
    message: str


@dataclass(slots=True)
class MergedTrees:
    """The result of git's merge of two commits.

    Attributes:
        stages: The entries of a conflict by path and stage (1 base, 2 ours, 3 theirs).
        whole: The paths among these that are not merged by lines.
        moved: The paths among these to which one side renamed what the other one deleted, or to which git moved a new file,
            since the other side renamed its directory.
        twice: What each side renamed to a name of its own: the old path, ours and theirs.
        sides: The two commits.
    """

    tree: bytes
    clashes: list[Clash] = field(default_factory=list)
    stages: dict[bytes, dict[int, Entry]] = field(default_factory=dict)
    whole: set[bytes] = field(default_factory=set)
    moved: set[bytes] = field(default_factory=set)
    twice: list[tuple[bytes, bytes, bytes]] = field(default_factory=list)
    sides: tuple[bytes, bytes] = (b"", b"")

    def undecided(self, favor: str) -> list[Clash]:
        """Return the conflicts that *favor* leaves: union does not decide about a file that is not merged by lines."""
        return [] if favor in ("ours", "theirs") else [one for one in self.clashes if not favor or one.path in self.whole]


class Unrelated(Exception):
    """Two commits have no common ancestor."""


class Commits:
    """Reads and creates commits in *workshop*."""

    def __init__(self, workshop: Workshop) -> None:
        self._workshop = workshop
        self._counts: dict[tuple[bytes, bytes], tuple[int, int]] = {}
        self._hash = hashlib.sha256 if workshop.form == "sha256" else hashlib.sha1
        self.empty_tree = self._id(b"tree", b"")
        self.zero = b"0" * len(self.empty_tree)

    def _id(self, kind: bytes, data: bytes) -> bytes:
        return self._hash(kind + b" %d\0" % len(data) + data).hexdigest().encode()

    def blob_id(self, data: bytes) -> bytes:
        """Return the object id that a file's content has."""
        return self._id(b"blob", data)

    # -- reading

    def tree_of(self, commit: bytes) -> bytes:
        """Return the id of a commit's tree; of the empty tree for b"" (a branch without commits)."""
        return self._field(commit, b"tree") if commit else self.empty_tree

    def parents(self, commit: bytes) -> list[bytes]:
        """Return the ids of a commit's parents, in order."""
        header = self._workshop.read(commit)[1].partition(b"\n\n")[0]
        return [line[7:] for line in header.splitlines() if line.startswith(b"parent ")]

    def _field(self, commit: bytes, name: bytes) -> bytes:
        kind, data = self._workshop.read(commit)
        if kind != b"commit":
            raise GitFailed(f"{commit.decode()} is not a commit")
        return next(line[len(name) + 1 :] for line in data.splitlines() if line.startswith(name + b" "))

    def who(self, commit: bytes) -> bytes:
        """Return the committer of a commit as ``NAME <ADDRESS>``."""
        return self._field(commit, b"committer").rpartition(b">")[0] + b">"

    def title(self, commit: bytes) -> bytes:
        """Return the first line of a commit's message."""
        return self._workshop.read(commit)[1].partition(b"\n\n")[2].partition(b"\n")[0]

    def blob(self, oid: bytes) -> bytes:
        """Return the content of a blob."""
        return self._workshop.read(oid)[1]

    def is_ancestor(self, one: bytes, two: bytes) -> bool:
        """Return whether *one* is *two* or in the history of *two*."""
        return self.count(one, two)[0] == 0

    def count(self, one: bytes, two: bytes) -> tuple[int, int]:
        """Return how many commits the history of *one* has that the history of *two* lacks, and the other way round."""
        if one == two:
            return 0, 0
        if (one, two) not in self._counts:
            said = self._walk("--left-right", "--count", one + b"..." + two, "--").split()
            self._counts[one, two] = int(said[0]), int(said[1])
            self._counts[two, one] = int(said[1]), int(said[0])
        return self._counts[one, two]

    def is_new(self, commit: bytes, known: set[bytes]) -> bool:
        """Return whether the commit is in the history of none of the *known* commits."""
        if commit in known:
            return False
        names = b"".join(b"^" + name + b"\n" for name in sorted(known))
        return bool(self._workshop.git("rev-list", "--max-count=1", "--stdin", "--ignore-missing", data=commit + b"\n" + names))

    def is_whole(self, tips: set[bytes], known: set[bytes]) -> bool:
        """Return whether all objects are there that *tips* need, and that *known* ones do not need."""
        lines = b"".join(name + b"\n" for name in sorted(tips)) + b"".join(b"^" + name + b"\n" for name in sorted(known))
        try:
            self._workshop.git("rev-list", "--objects", "--quiet", "--stdin", data=lines)
        except GitFailed:
            return False
        return True

    def differences(self, pairs: list[tuple[bytes, bytes]]) -> list[dict[bytes, Difference]]:
        """Return the differences between the two trees of each pair, by path."""
        different = [(one, two) for one, two in pairs if one != two]
        lines = b"".join(one + b" " + two + b"\n" for one, two in different)
        said = (
            self._workshop.git("diff-tree", "--stdin", "-r", "-z", "--no-renames", "--no-abbrev", data=lines)
            if different
            else b""
        )
        by_pair: dict[tuple[bytes, bytes], dict[bytes, Difference]] = {}
        into: dict[bytes, Difference] = {}
        while said:
            if said.startswith(b":"):
                fields, path, said = said.split(b"\0", 2)
                old_mode, new_mode, old, new, _ = fields[1:].split(b" ")
                into[path] = Difference(self._entry(old_mode, old), self._entry(new_mode, new))
            else:
                line, _, said = said.partition(b"\n")
                one, two = line.split()
                into = by_pair.setdefault((one, two), {})
        return [by_pair.get(pair, {}) for pair in pairs]

    def _entry(self, mode: bytes, oid: bytes) -> Entry:
        return NOTHING if oid == self.zero else Entry(mode, oid)

    # -- making

    def write(self, kind: bytes, data: bytes) -> bytes:
        """Create an object and return its id."""
        oid = self._id(kind, data)
        name = oid.decode()
        path = os.path.join(self._workshop.objects, name[:2], name[2:])
        if not os.path.exists(path):
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path, "wb") as file:
                file.write(zlib.compress(kind + b" %d\0" % len(data) + data, 1))
        return oid

    def commit(self, tree: bytes, parents: list[bytes], message: bytes, who: bytes, author: bytes = b"") -> bytes:
        """Create a commit with the present time and return its id. *author*: the author line of another commit, to keep it."""
        now = b"%d +0000" % time.time()
        lines = [b"tree " + tree, *(b"parent " + parent for parent in parents)]
        lines += [author or b"author " + who + b" " + now, b"committer " + who + b" " + now, b"", message]
        return self.write(b"commit", b"\n".join(lines))

    def merge(
        self, ours: bytes, theirs: bytes, names: tuple[str, str], *, unrelated: bool = False, with_base: bool = False
    ) -> MergedTrees:
        """Merge two commits as `git merge` does.

        Args:
            ours: A commit.
            theirs: The commit to merge into it.
            names: The names of both sides, for conflict markers.
            with_base: Put the common state between the conflict markers, too.
            unrelated: Also merge commits without a common ancestor.

        Raises:
            Unrelated: The commits have no common ancestor.
            GitFailed: An object is missing, or git failed.
        """
        labels = [self._label(name, commit) for name, commit in zip(names, (ours, theirs), strict=True)]
        try:
            more = ["--allow-unrelated-histories"] if unrelated else []
            style = ["-c", "merge.conflictStyle=diff3"] if with_base else []
            said, code = self._workshop.ask(
                *style, "merge-tree", "--write-tree", "-z", "--messages", *more, *labels, good=(0, 1), in_tree=True
            )
        except GitFailed as exc:
            if "unrelated histories" in str(exc):
                self._walk("--quiet", ours, theirs)  # git takes histories of which a commit is missing for unrelated
                raise Unrelated from None
            raise
        tree, _, rest = said.partition(b"\0")
        merged = MergedTrees(tree, sides=(ours, theirs))
        if code:
            self._read_clashes(merged, rest)
            for name, label in zip(names, labels, strict=True):
                merged.clashes = [one._replace(message=one.message.replace(label, name)) for one in merged.clashes]
            self._explain(merged)
        return merged

    def _explain(self, merged: MergedTrees) -> None:
        """Say of conflicts that the attributes of a file are the reason."""
        rules = rules_of(self._workshop, [clash.path for clash in merged.clashes if clash.kind in ("content", "binary")])
        for number, clash in enumerate(merged.clashes):
            rule = rules.get(clash.path)
            if rule is not None and rule.way == "whole":
                merged.clashes[number] = Clash(clash.path, rule.kind, rule.message)
        merged.whole = {path for path, kind, _ in merged.clashes if kind == "binary" or rules.get(path, BY_LINES).way == "whole"}

    def _walk(self, *arguments: str | bytes) -> bytes:
        """Run `git rev-list`, and say it in one sentence if a commit is missing."""
        try:
            return self._workshop.git("rev-list", *arguments)
        except GitFailed as exc:
            missing = _UNREADABLE.search(str(exc))
            if missing is None:
                raise
            message = f"commit {missing[1]} is missing in the repository; objects that it borrows from elsewhere are not read"
            raise GitFailed(message) from None

    def _label(self, name: str, commit: bytes) -> str:
        """Make a branch in the workshop for a commit, so that git uses its name in markers.

        Return the commit's id if the name is not usable.
        """
        if (
            not _PLAIN_NAME.fullmatch(name)
            or name.endswith((".lock", "."))
            or ".." in name
            or name.isupper()
            or len(name) >= len(self.zero)
        ):
            return commit.decode()
        place = os.path.join(self._workshop.path, "refs", "heads")
        os.makedirs(place, exist_ok=True)
        with open(os.path.join(place, name), "wb") as file:
            file.write(commit + b"\n")
        return name

    @staticmethod
    def _read_clashes(merged: MergedTrees, said: bytes) -> None:
        fields = said.split(b"\0")
        end = fields.index(b"")
        for line in fields[:end]:
            info, _, path = line.partition(b"\t")
            mode, oid, stage = info.split(b" ")
            merged.stages.setdefault(path, {})[int(stage)] = Entry(mode, oid)
        clashes, at = dict[bytes, Clash](), end + 1
        while at < len(fields) and fields[at]:
            count = int(fields[at])
            paths, text = fields[at + 1 : at + 1 + count], fields[at + 2 + count].decode("utf-8", "backslashreplace")
            name, at = fields[at + 1 + count], at + count + 3
            if name == b"CONFLICT (binary)":
                clashes |= {path: Clash(path, "binary", _IN_WORDS["binary"]) for path in paths}
            elif match := _CONFLICT.match(text):
                kind = _KINDS.get(match[1], match[1])
                merged.moved |= {*paths} & merged.stages.keys() if kind in NEW_NAMES else set()
                merged.twice += [(paths[0], paths[1], paths[2])] if kind == "rename/rename" and len(paths) == 3 else []
                for path in paths:
                    clashes.setdefault(path, Clash(path, kind, _IN_WORDS.get(kind, match[2].strip())))
        merged.clashes = [clashes.get(path, Clash(path, "content", "git cannot merge it")) for path in sorted(merged.stages)]

    def settle(self, merged: MergedTrees, favor: str, *, keep_names: bool = False) -> bytes:
        """Return the tree of a merge in which *favor* (ours, theirs or union) decides the conflicts.

        What one side renamed and the other one deleted stays: neither has deleted the new name. So does a new file in a directory
        that the other side renamed. What each side renamed to a name of its own gets the favoured one; with *keep_names* our file
        stays at its name, too, as it is.
        """
        lines, without_markers = [], self._without_markers(merged, favor)
        kept = {mine for _, mine, _ in merged.twice} if keep_names and favor == "theirs" else set()
        for path, stages in {**merged.stages, **without_markers}.items():
            if path in kept:
                entry = self._entry_at(merged.sides[0], path)
            elif path in merged.moved and not {2, 3} <= stages.keys():
                entry = stages.get(2) or stages.get(3) or NOTHING
            elif path in merged.whole:
                entry = stages.get(3 if favor == "theirs" else 2, NOTHING)
            else:
                entry = self._favourite(stages, favor)
            mode, oid = entry if entry.oid else (b"0", self.zero)
            lines.append(b"0 " + self.zero + b"\t" + path + b"\0")
            lines.append(mode + b" " + oid + b"\t" + path + b"\0")
        index = os.path.join(self._workshop.path, "settling")
        self._workshop.git("read-tree", merged.tree, GIT_INDEX_FILE=index)
        self._workshop.git("update-index", "-z", "--index-info", data=b"".join(lines), GIT_INDEX_FILE=index)
        return self._workshop.git("write-tree", GIT_INDEX_FILE=index).strip()

    def _without_markers(self, merged: MergedTrees, favor: str) -> dict[bytes, dict[int, Entry]]:
        """Return the stages anew of paths where git's own have conflict markers in them: those of files that were renamed.

        Also where git has put our binary file under their name.
        """
        found: dict[bytes, dict[int, Entry]] = {}
        for old, mine, his in merged.twice:
            base, git_made = merged.stages.get(old, {}).get(1, NOTHING), merged.stages.get(mine, {}).get(2, NOTHING)
            sides = {2: self._entry_at(merged.sides[0], mine), 3: self._entry_at(merged.sides[1], his)}
            if base.oid and git_made.oid and (git_made.oid == sides[2].oid or self._has_markers(git_made)):
                chosen = self._favourite({1: base, **sides}, favor)._replace(mode=git_made.mode)
                found[mine] = merged.stages[mine] | {2: chosen}
                found[his] = merged.stages.get(his, {}) | {3: chosen}
        for path, stages in merged.stages.items():
            marked = [stage for stage in (2, 3) if path not in found and self._has_markers(stages.get(stage, NOTHING))]
            if marked:
                found[path] = stages | {stage: self._own(merged, path, stage) for stage in marked}
        return found

    def left_open(self, merged: MergedTrees) -> list[Clash]:
        """Return the conflicts of a merge that is left to people: those of content where there are markers in a file.

        Of a file that each side gave a name of its own, git tells only that.
        """
        marked = set()
        for _, mine, his in merged.twice:
            for path, stage in ((mine, 2), (his, 3)):
                if self._has_markers(merged.stages.get(path, {}).get(stage, NOTHING)):
                    marked.add(path)
        return [clash._replace(kind="content") if clash.path in marked else clash for clash in merged.clashes]

    def _own(self, merged: MergedTrees, path: bytes, stage: int) -> Entry:
        own = self._entry_at(merged.sides[stage - 2], path)
        return own if own.oid else merged.stages[path][stage]

    def _has_markers(self, entry: Entry) -> bool:
        return entry.mode.startswith(b"100") and b"\n<<<<<<<" in b"\n" + self.blob(entry.oid)

    def _entry_at(self, commit: bytes, path: bytes) -> Entry:
        said = self._workshop.git("ls-tree", "-z", "--full-tree", commit, "--", path)
        mode, _, oid = said.partition(b"\t")[0].split(b" ") if said else (b"", b"", b"")
        return Entry(mode, oid)

    def _favourite(self, stages: dict[int, Entry], favor: str) -> Entry:
        side = stages.get(3 if favor == "theirs" else 2, NOTHING)
        ours, theirs = stages.get(2, NOTHING), stages.get(3, NOTHING)
        if not (ours.mode.startswith(b"100") and theirs.mode.startswith(b"100")):
            return side
        places = []
        for stage in (2, 1, 3):
            places.append(os.path.join(self._workshop.path, f"stage-{stage}"))
            with open(places[-1], "wb") as file:
                file.write(self.blob(stages[stage].oid) if stage in stages else b"")
        try:
            text = self._workshop.git("merge-file", "-p", f"--{favor}", *places)
        except GitFailed:  # binary
            return side
        return Entry(side.mode, self.write(b"blob", text))
