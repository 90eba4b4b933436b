"""Compares the commits of a checkout with what a join made of them, and brings its index there. It runs in a workshop.

Source: gitformat-index(5).
"""

import os

from agentfsd.repositories.commits import Commits, Entry
from agentfsd.repositories.joined_history import Joined
from agentfsd.repositories.ref_names import directories_above
from agentfsd.repositories.workshop import Workshop

_VERSION_WITH_FLAGS = 3


class CheckoutIndex:
    """The index of one checkout of our side, and the differences of its commits: of the main work tree, or a linked one."""

    def __init__(self, workshop: Workshop, commits: Commits) -> None:
        self._workshop, self._commits = workshop, commits

    def compare(self, joined: Joined, theirs: bytes) -> None:
        """Fill in the tree of *joined* and its differences from our commit, and from *theirs*, their commit."""
        before, other = (self._commits.tree_of(commit) for commit in (joined.was, theirs))
        joined.tree = joined.tree or self._commits.tree_of(joined.now)
        joined.to_ours, joined.to_theirs = self._commits.differences([(before, joined.tree), (other, joined.tree)])
        for path in joined.to_ours.keys() & joined.to_theirs.keys() | joined.stages.keys():
            entry = joined.to_ours[path].new if path in joined.to_ours else Entry()
            if entry.oid and entry.mode.startswith(b"1") and entry.mode != b"160000":
                joined.contents[entry.oid] = self._commits.blob(entry.oid)

    def fit(self, joined: Joined, index: bytes | None, started: bytes, sparse: bytes | None = None) -> bytes | None:
        """Return an index, updated to the result. What was staged stays staged where git can keep it.

        Args:
            joined: The result. ``unmerged`` and ``unstaged`` are filled in.
            index: The index; None if there is none yet.
            started: The commit that it belongs to.
            sparse: The index of the other side's checkout, if it is a sparse one: it brings no file that this index leaves out.

        Returns:
            The index; None if somebody has to resolve conflicts in it first.
        """
        place = f"{self._workshop.path}/index"
        if index is None:
            self._workshop.git("read-tree", joined.tree)
        else:
            with open(place, "wb") as file:
                file.write(index)
            joined.unmerged = self._unmerged()
            if joined.unmerged:
                return None
            before = self._commits.tree_of(started)
            self._unstage(before, joined)
            self._workshop.git("read-tree", "-i", "-m", before, joined.tree)  # without -i it asks for a work tree
        if sparse is not None:
            self._leave_out(self._left_out(sparse))
        if joined.stages:
            self._workshop.git("update-index", "-z", "--index-info", data=self._stage_lines(joined))
        with open(place, "rb") as file:
            return file.read()

    def _left_out(self, index: bytes) -> set[bytes]:
        """Return the paths that a sparse checkout leaves out (git's skip-worktree)."""
        if int.from_bytes(index[4:8], "big") < _VERSION_WITH_FLAGS:
            return set()
        place = os.path.join(self._workshop.path, "sparse-index")
        with open(place, "wb") as file:
            file.write(index)
        return {
            line[2:]
            for line in self._workshop.git("ls-files", "-z", "-t", GIT_INDEX_FILE=place).split(b"\0")
            if line[:2] == b"S "
        }

    def _leave_out(self, paths: set[bytes]) -> None:
        """Mark paths as left out. Otherwise git takes their files for removed ones."""
        if paths:
            there = {line[2:] for line in self._workshop.git("ls-files", "-z", "-t").split(b"\0") if line[:2] == b"H "}
            data = b"".join(path + b"\0" for path in sorted(paths & there))
            tree = self._workshop.path  # git wants one, and looks at none of its files
            self._workshop.git("update-index", "-z", "--skip-worktree", "--stdin", data=data, GIT_WORK_TREE=tree)

    def _unmerged(self) -> list[bytes]:
        lines = self._workshop.git("ls-files", "-z", "--unmerged").split(b"\0")
        return sorted({line.partition(b"\t")[2] for line in lines} - {b""})

    def _unstage(self, started: bytes, joined: Joined) -> None:
        """Take out of the index what was staged at, above or below a path that the join changes, unless the result has it."""
        said = self._workshop.git("diff-index", "--cached", "-z", "--no-renames", "--no-abbrev", started)
        fields = said.split(b"\0")
        changed = self._commits.differences([(started, joined.tree)])[0] if said else {}
        coming = {path for path, difference in changed.items() if difference.new.oid}
        above = {part for path in coming for part in directories_above(path)}
        lines = []
        for info, path in zip(fields[:-1:2], fields[1::2], strict=True):
            old_mode, mode, old, oid, _ = info[1:].split(b" ")
            entry = Entry(mode, oid) if oid != self._commits.zero else Entry()
            clashes = changed[path].new != entry if path in changed else path in above
            if clashes or any(part in coming for part in directories_above(path)):
                lines.append(b"0 " + self._commits.zero + b"\t" + path + b"\0")
                lines.append(old_mode + b" " + old + b"\t" + path + b"\0" if old != self._commits.zero else b"")
                joined.unstaged[path] = entry
        if lines:
            self._workshop.git("update-index", "-z", "--index-info", data=b"".join(lines))

    def _stage_lines(self, joined: Joined) -> bytes:
        lines = []
        for path, stages in joined.stages.items():
            lines.append(b"0 " + self._commits.zero + b"\t" + path + b"\0")
            lines += [entry.mode + b" " + entry.oid + b" %d\t" % stage + path + b"\0" for stage, entry in stages.items()]
        return b"".join(lines)
