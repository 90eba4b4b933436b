"""Join two histories of one repository: refs are merged three-way, commits by git's own merge.

It runs in a workshop, in a thread.

docs/explanation/git-histories.md has the rules. This module sees names and object ids only, never a tree of the overlay.
joined_history.py has what it is told and what it answers.
"""

from collections.abc import Iterable
from dataclasses import replace

from agentfsd.repositories.before import UNKNOWN
from agentfsd.repositories.checkout_index import CheckoutIndex
from agentfsd.repositories.commits import Clash, Commits, MergedTrees, Unrelated
from agentfsd.repositories.joined_history import REAL_DIRECTORY, Joined, Manner, MovedRef
from agentfsd.repositories.reading import GitDatabase
from agentfsd.repositories.ref_names import short_name
from agentfsd.repositories.refs_beside import RefsBeside
from agentfsd.repositories.workshop import Workshop
from agentfsd.repositories.worktree_checkouts import LinkedCheckout

_ONES_OWN = (b"refs/bisect/", b"refs/worktree/", b"refs/rewritten/")  # of one checkout: never merged
_MERGEABLE = (b"refs/heads/", b"refs/notes/")


class Joiner:
    """Joins *theirs* to *ours*. *base* is the common state that both started from.

    The refs that ``ours.linked`` names are checked out in linked worktrees whose index and files would not follow: they stay.
    """

    def __init__(self, workshop: Workshop, base: GitDatabase, ours: GitDatabase, theirs: GitDatabase, manner: Manner) -> None:
        self._workshop, self._commits = workshop, Commits(workshop)
        self._index, self._held = CheckoutIndex(workshop, self._commits), {*ours.linked, *ours.checked_out}
        self._base, self._ours, self._theirs, self._manner = base, ours, theirs, manner
        self._beside = RefsBeside(manner.names[1], ours, self._commits.is_ancestor)
        self._brought, self._how = 0, ""
        self.joined = Joined()

    def join(self, linked: Iterable[LinkedCheckout] = ()) -> Joined:
        """Join the histories and return the result. If ``clashes`` is not empty, the histories cannot be joined.

        Args:
            linked: The linked worktrees that are to follow.
        """
        joined = self.joined
        self._join_refs()
        self._join_head()
        self._beside.enter(joined)
        if not self._ours.bare:
            self._index.compare(joined, self._theirs.resolve(b"HEAD"))
            sparse = self._theirs.index if self._theirs.sparse else None
            if joined.now != joined.was or joined.stages or sparse not in (None, self._ours.index):
                joined.index = self._index.fit(joined, self._ours.index, joined.was, sparse)
        if not joined.clashes:
            joined.linked = {checkout.name: self._fit_linked(checkout) for checkout in linked}
        joined.made = self._workshop.made()
        return joined

    # -- refs

    def _join_refs(self) -> None:
        base, ours, theirs = self._base.refs, self._ours.refs, self._theirs.refs
        for name in sorted(base.keys() | ours.keys() | theirs.keys()):
            if name == self._ours.branch or name.startswith(_ONES_OWN):
                continue
            was, mine, his = base.get(name, b""), ours.get(name, b""), theirs.get(name, b"")
            if his in (was, mine):
                continue
            if self._manner.way == "beside" and name.startswith(b"refs/heads/"):
                self._put_beside(name, his)
            elif name in self._held and (mine == was or not mine):
                self._leave_checked_out(name, mine, his)
            elif mine == was or not mine:
                self._move(name, his, f"as in {self._manner.names[1]}")
            elif his:
                self._join_ref(name, mine, his)

    def _leave_checked_out(self, name: bytes, mine: bytes, his: bytes) -> None:
        """Keep theirs beside a ref that only they have changed. What they only took from it stays there."""
        if not his or his.startswith(b"ref: ") or self._has(mine, his):
            self.joined.said.append(f"{short_name(name)} stays as it is: it is checked out")
        else:
            self._put_beside(name, his)

    def _has(self, mine: bytes, his: bytes) -> bool:
        """Return whether our value of a ref has a commit of theirs in its history. Ours may be symbolic."""
        commit = self._ours.resolve(mine[5:].strip()) if mine.startswith(b"ref: ") else mine
        return bool(commit) and self._commits.is_ancestor(his, commit)

    def _join_ref(self, name: bytes, mine: bytes, his: bytes) -> None:
        if his.startswith(b"ref: ") or name == b"refs/stash":
            return  # the stash is its log: see repository_fitter.py
        if mine.startswith(b"ref: "):
            if not name.startswith(b"refs/remotes/") and not self._has(mine, his):
                self._put_beside(name, his)
        elif not name.startswith((*_MERGEABLE, b"refs/remotes/")):
            self._put_beside(name, his)
        elif self._commits.is_ancestor(mine, his):
            self._forward(name, his)
        elif not name.startswith(_MERGEABLE) or self._commits.is_ancestor(his, mine):
            return
        else:
            made = self._merge_quietly(mine, his, name)
            if made:
                self._move(name, made, f"merge of {self._manner.names[1]}")
            else:
                self._put_beside(name, his)

    def _forward(self, name: bytes, his: bytes) -> None:
        if name in self._held:
            self._put_beside(name, his)
        else:
            self._move(name, his, f"as in {self._manner.names[1]}: fast-forward")

    def _merge_quietly(self, mine: bytes, his: bytes, name: bytes) -> bytes:
        """Merge a branch that is not checked out.

        Returns:
            The merge commit; b"" if git finds conflicts, or if a linked worktree of ours has the branch checked out.
        """
        if self._manner.only_forward:
            self._refuse_parted(name, mine, his)
            return b""
        if name in self._ours.linked:
            return b""
        try:
            merged = self._commits.merge(mine, his, self._manner.names, unrelated=name.startswith(b"refs/notes/"))
        except Unrelated:
            return b""
        return b"" if merged.stages else self._merge_commit(merged.tree, mine, his, name)

    def _merge_commit(self, tree: bytes, mine: bytes, his: bytes, name: bytes) -> bytes:
        into = short_name(name) if name else "HEAD"
        message = f"Merge {short_name(self._theirs.branch or b'HEAD')} of {self._manner.names[1]} into {into}\n"
        return self._commits.commit(tree, [mine, his], message.encode(), self._commits.who(his))

    def _move(self, name: bytes, new: bytes, why: str) -> None:
        old = self._ours.refs.get(name, b"")
        if new != old:
            self.joined.refs[name] = MovedRef(old, new, why)

    def _put_beside(self, name: bytes, his: bytes) -> None:
        """Keep their value of a ref under a name of its own, next to ours."""
        self._beside.keep(name, his)

    # -- what is checked out

    def _join_head(self) -> None:
        joined, name = self.joined, self._ours.branch
        joined.was = joined.now = self._ours.resolve(b"HEAD")
        was, his = self._base.resolve(name or b"HEAD"), self._his_head(name)
        if self._manner.way == "beside" or name in self._ours.linked:  # as a bare repository's HEAD may be
            if name and his not in (was, b""):
                self._put_beside(name, his)
            self._beside_detached()
            return
        if his and his != was:
            if joined.was == was and self._manner.way != "squash":
                self._brought += self._commits.count(joined.was, his)[1] if joined.was else 0
                joined.now = his
            else:
                self._take_in(his)
        head = self._theirs.resolve(b"HEAD")
        if head and head != his and not joined.stages and not joined.clashes and self._is_new_work(head):
            self._take_in(head)
        if joined.now != joined.was:
            why = f"merge {self._manner.names[1]}"
            joined.said.append(self._told(name))
            if name:
                self._move(name, joined.now, why)
            else:
                joined.head = joined.now
        if joined.now:
            joined.who = self._commits.who(joined.now)

    def _told(self, name: bytes) -> str:
        """``a2: 2 commits to main, merged``."""
        joined, branch, source = self.joined, short_name(name or b"HEAD"), self._manner.names[1]
        if not joined.was:
            return f"{source}: {branch} is new, at {joined.now[:7].decode()}"
        gone = 0 if self._how else self._commits.count(joined.was, joined.now)[0]
        lost = f", which loses {gone} of its own" if gone else ""
        return f"{source}: {self._brought} commit{'' if self._brought == 1 else 's'} to {branch}{self._how}{lost}"

    def _beside_detached(self) -> None:
        head = self._theirs.resolve(b"HEAD")
        if not self._theirs.branch and head and self._is_new_work(head):
            self._put_beside(b"refs/heads/HEAD", head)

    def _his_head(self, name: bytes) -> bytes:
        """Return the other side's commit of the branch that our side has checked out; b"" if there is none."""
        if name:
            return self._theirs.resolve(name)
        return b"" if self._theirs.branch else self._theirs.head

    def _is_new_work(self, commit: bytes) -> bool:
        """Return whether the other side made this commit. If not, it only checked out a commit that existed before.

        What an earlier merge kept beside, under the other side's name, was not merged yet. If it has moved its branch forward, it
        has done so though we may know the commits under another name, such as a tag.
        """
        was = self._base.refs.get(self._theirs.branch, b"")
        if was not in (b"", UNKNOWN, commit) and not was.startswith(b"ref: ") and not self._commits.is_new(was, {commit}):
            return True
        refs = self._base.refs.items()  # not ours: a branch that we have got under its own name is not merged by that
        known = {value for name, value in refs if not self._beside.has_kept(name) and not value.startswith(b"ref: ")}
        known |= {side.resolve(b"HEAD") for side in (self._base, self._ours)} | {self.joined.now}
        return self._commits.is_new(commit, known - {b"", UNKNOWN})

    def _take_in(self, his: bytes) -> None:
        """Merge a commit into the result."""
        joined, mine = self.joined, self.joined.now
        self._brought += self._commits.count(mine, his)[1] if mine else 0
        if not mine or (self._commits.is_ancestor(mine, his) and self._manner.way != "squash"):
            joined.now = his
        elif not self._commits.is_ancestor(his, mine):
            if self._manner.way == "rebase":
                self._replay(mine, his)
            else:
                self._merge(mine, his)

    def _refuse_parted(self, name: bytes, mine: bytes, his: bytes) -> None:
        there, here = ((commit[:7] + b" " + self._commits.title(commit)).decode("utf-8", "replace") for commit in (mine, his))
        ours, theirs = self._manner.names
        text = f"{short_name(name or b'HEAD')} has moved on in {ours} ({there}) and in {theirs} ({here})"
        self.joined.clashes.append(Clash(b"", "history", text))

    def _merge(self, mine: bytes, his: bytes) -> None:
        joined, manner = self.joined, self._manner
        if manner.only_forward:
            self._refuse_parted(self._ours.branch, mine, his)
            return
        try:
            merged = self._commits.merge(mine, his, manner.names, with_base=manner.with_base)
        except Unrelated:
            joined.parted = True
            joined.said.append(
                f"{short_name(self._ours.branch or b'HEAD')} of {manner.names[1]} has no commit in common with ours"
            )
            self._put_beside(self._theirs.branch or b"refs/heads/HEAD", his)
            return
        if manner.whole_files and not merged.stages:
            self._refuse_shared(mine, his, merged)
        if merged.stages and not manner.favor and manner.markers and not self._ours.bare:
            joined.tree, joined.stages, joined.theirs, joined.clashes = merged.tree, merged.stages, his, []
            joined.settled += self._commits.left_open(merged)
            return
        if undecided := merged.undecided(manner.favor):
            joined.clashes = undecided
            return
        tree = self._settle(merged)
        if manner.way == "squash":
            message = f"Squashed: {short_name(self._theirs.branch or b'HEAD')} of {manner.names[1]}\n\n{self._titles(mine, his)}"
            joined.now = self._commits.commit(tree, [mine], message.encode(), self._commits.who(his))
            self._how = ", squashed into one"
        else:
            joined.now = self._merge_commit(tree, mine, his, self._ours.branch)
            self._how = ", merged"

    def _settle(self, merged: MergedTrees) -> bytes:
        """Return the tree of a merge in which the favoured side decides the conflicts, and note these."""
        self.joined.settled += merged.clashes
        self.joined.renamed_twice |= {path for paths in merged.twice for path in paths}
        keep_names = self._manner.names[0] == REAL_DIRECTORY  # a commit removes there only what the branch removed
        return self._commits.settle(merged, self._manner.favor, keep_names=keep_names) if merged.stages else merged.tree

    def _refuse_shared(self, mine: bytes, his: bytes, merged: MergedTrees) -> None:
        trees = [self._commits.tree_of(commit) for commit in (mine, his)]
        to_ours, to_theirs = self._commits.differences([(tree, merged.tree) for tree in trees])
        for path in sorted(to_ours.keys() & to_theirs.keys()):
            merged.stages[path] = {2: to_ours[path].old, 3: to_theirs[path].old}
            merged.clashes.append(Clash(path, "content", "changed on both sides"))

    def _titles(self, mine: bytes, his: bytes) -> str:
        said = self._workshop.git("log", "--reverse", "--format=* %s", his, b"^" + mine)
        return said.decode("utf-8", "replace")

    def _replay(self, mine: bytes, his: bytes) -> None:
        """Rebase the commits of *his* that *mine* lacks onto *mine*. Merge commits are left out, unless somebody edited one."""
        if self._refuse_edited_merges(mine, his):
            return
        self._how = ", rebased"
        self._brought -= len(self._merges(mine, his))
        said = self._workshop.git("rev-list", "--reverse", "--topo-order", "--no-merges", his, b"^" + mine)
        for commit in said.split():
            parents = self._commits.parents(commit)
            before = self._commits.tree_of(parents[0]) if parents else self._commits.empty_tree
            root = self._commits.commit(before, [], b"base\n", self._commits.who(commit))
            sides = [
                self._commits.commit(self._commits.tree_of(tip), [root], b"side\n", self._commits.who(commit))
                for tip in (mine, commit)
            ]
            merged = self._commits.merge(sides[0], sides[1], self._manner.names)
            if undecided := merged.undecided(self._manner.favor):
                self.joined.clashes = undecided
                return
            tree = self._settle(merged)
            if tree != self._commits.tree_of(mine):
                mine = self._again(commit, tree, mine)
        self.joined.now = mine

    def _refuse_edited_merges(self, mine: bytes, his: bytes) -> bool:
        for commit in self._merges(mine, his):
            if self._has_edits(commit):
                shown = (commit[:7] + b" " + self._commits.title(commit)).decode("utf-8", "replace")
                text = f"{shown} of {self._manner.names[1]} is a merge that somebody edited: a rebase would lose the edits"
                self.joined.clashes.append(Clash(b"", "history", text))
        return bool(self.joined.clashes)

    def _merges(self, mine: bytes, his: bytes) -> list[bytes]:
        return self._workshop.git("rev-list", "--merges", his, b"^" + mine).split()

    def _has_edits(self, merge: bytes) -> bool:
        """Whether a merge commit is something else than git makes of its parents."""
        parents = self._commits.parents(merge)
        if len(parents) != 2:
            return True
        try:
            merged = self._commits.merge(parents[0], parents[1], ("ours", "theirs"))
        except Unrelated:
            return True
        return bool(merged.stages) or merged.tree != self._commits.tree_of(merge)

    def _again(self, commit: bytes, tree: bytes, parent: bytes) -> bytes:
        header, _, message = self._workshop.read(commit)[1].partition(b"\n\n")
        author = next(line for line in header.splitlines() if line.startswith(b"author "))
        return self._commits.commit(tree, [parent], message, self._commits.who(commit), author)

    # -- working files and index

    def _fit_linked(self, checkout: LinkedCheckout) -> Joined:
        """Return the result for a linked worktree, as for a checkout of its own."""
        switched = checkout.head != self._ours.worktrees.get(checkout.name, checkout.head)
        part = Joined(was=checkout.was, now=self._resolve(checkout.head), switched=switched)
        self._index.compare(part, checkout.theirs)
        part.who = self._commits.who(part.now) if part.now else part.who
        if part.now != checkout.theirs or not checkout.ours_untouched:
            part.index = self._index.fit(part, checkout.index, checkout.started, checkout.sparse)
        return part

    def _resolve(self, value: bytes) -> bytes:
        """Return the object id that a HEAD with this value has after the join; b"" if there is none."""
        refs = self._ours.refs | {name: moved.new for name, moved in self.joined.refs.items()}
        return replace(self._ours, refs=refs).resolve_value(value)
