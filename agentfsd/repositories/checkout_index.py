"""Compares the commits of a checkout with what a join made of them, and brings its index there. It runs in a workshop."""

from agentfsd.repositories.commits import Commits, Entry
from agentfsd.repositories.joined_history import Joined
from agentfsd.repositories.workshop import GitFailed, Workshop


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

    def fit(self, joined: Joined, index: bytes | None, started: bytes) -> bytes:
        """Return an index, updated to the result. What was staged stays staged where git can keep it.

        Args:
            joined: The result.
            index: The index; None if there is none yet.
            started: The commit that it belongs to.
        """
        place = f"{self._workshop.path}/index"
        if index is None:
            self._workshop.git("read-tree", joined.tree)
        else:
            with open(place, "wb") as file:
                file.write(index)
            self._read_trees(self._commits.tree_of(started), joined)
        if joined.stages:
            self._workshop.git("update-index", "-z", "--index-info", data=self._stage_lines(joined))
        with open(place, "rb") as file:
            return file.read()

    def _read_trees(self, started: bytes, joined: Joined) -> None:
        try:
            self._workshop.git("read-tree", "-i", "-m", started, joined.tree)
        except GitFailed:
            self._workshop.git("read-tree", "-i", "--reset", joined.tree)  # without -i it asks for a work tree

    def _stage_lines(self, joined: Joined) -> bytes:
        lines = []
        for path, stages in joined.stages.items():
            lines.append(b"0 " + self._commits.zero + b"\t" + path + b"\0")
            lines += [entry.mode + b" " + entry.oid + b" %d\t" % stage + path + b"\0" for stage, entry in stages.items()]
        return b"".join(lines)
