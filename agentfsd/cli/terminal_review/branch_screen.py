"""The screen of one branch: its files at the left, their changes at the right, and what becomes of them."""

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, ClassVar, cast

import msgspec
from textual.app import ComposeResult
from textual.containers import Horizontal
from textual.screen import Screen
from textual.widgets import Footer, Input

from agentfs_client import wire
from agentfs_client.control import ControlClient
from agentfs_client.errors import NotFoundError
from agentfsd.cli.terminal_review import key_tables
from agentfsd.cli.terminal_review.branch_acts import BranchActs
from agentfsd.cli.terminal_review.conflict_screen import ConflictScreen
from agentfsd.cli.terminal_review.dialogues import KeyHelp
from agentfsd.cli.terminal_review.diff_view import DiffView
from agentfsd.cli.terminal_review.files_tree import FilesTree
from agentfsd.cli.terminal_review.head_line import HeadLine, WarningLine
from agentfsd.cli.terminal_review.note_flow import NoteFlow
from agentfsd.cli.terminal_review.path_search import PathSearch
from agentfsd.cli.terminal_review.review_acts import Act, StaleError, Verb
from agentfsd.cli.terminal_review.reviewed_branch import ReviewedBranch, fill, has_changed, read_files
from agentfsd.escape import printable

if TYPE_CHECKING:
    from agentfsd.cli.terminal_review.review_app import ReviewApp, Trouble
    from agentfsd.cli.terminal_review.reviewed_branch import FileUnderReview
    from agentfsd.review.hunks import ChangedFile
    from agentfsd.web.reviewed_files import ReviewedFile

_LOOK_S = 1.5
_LEAST_WIDTH = 60  # columns from which on the tree is shown


class BranchScreen(Screen[None]):
    """A branch under review.

    Args:
        ref: The branch's name or id.
    """

    AUTO_FOCUS: ClassVar[str] = "DiffView"
    BINDINGS = [*key_tables.BRANCH_KEYS]

    def __init__(self, ref: str) -> None:
        super().__init__()
        self._ref = ref
        self.reviewed: ReviewedBranch | None = None
        self._before: dict[bytes, FileUnderReview] = {}
        self._generation = 0  # answers of an earlier reading do not count
        self._is_looking = self._is_outdated = self._is_cut = False

    @property
    def _app(self) -> "ReviewApp":
        return cast("ReviewApp", self.app)

    def compose(self) -> ComposeResult:
        """Build the screen."""
        yield HeadLine("reading ...")
        yield WarningLine()
        with Horizontal():
            yield FilesTree()
            yield DiffView()
        yield PathSearch()
        yield Footer(show_command_palette=False, compact=True)

    def on_mount(self) -> None:
        """Read the branch, and look from time to time whether it has changed."""
        self._diff, self._tree, self._search = self.query_one(DiffView), self.query_one(FilesTree), self.query_one(PathSearch)
        self._notes = NoteFlow(self._app, self._diff, lambda: self.reviewed, self._notes_came)
        self._say(f"{printable(self._ref)}: reading ...")
        self.action_reread()
        self.set_interval(_LOOK_S, self._look)

    def on_resize(self) -> None:
        """Leave the tree out where it would take too much of the width."""
        self.query_one(FilesTree).display = self.app.size.width >= _LEAST_WIDTH

    # -- reading

    def action_reread(self) -> None:
        """Read the branch again. What was chosen of a file stays chosen if the file is the same."""
        self._generation += 1
        self._app.ask(
            partial(ReviewedBranch, ref=self.reviewed.branch.id if self.reviewed is not None else self._ref),
            partial(self._came, self._generation), self._failed,
        )  # fmt: skip

    def _came(self, generation: int, found: ReviewedBranch) -> None:
        if generation != self._generation or not self.is_attached:
            return
        before, at = self.reviewed, self._diff.at
        path = before.files[at[0]].path if before is not None and at[0] < len(before.files) else None
        self._before = {file.path: file for file in before.files} if before is not None else {}
        if before is not None:
            found.keep_marks(before)
        self.reviewed, self._is_outdated, self._is_cut = found, False, False
        self._tree.show(found.files)
        self._diff.show(found.files)
        number = next((number for number, file in enumerate(found.files) if file.path == path), 0)
        if found.files and number:
            self._diff.go_to_file(number)
        self._say_state()
        self._warn("")
        self._read_more()

    def _failed(self, trouble: "Trouble") -> None:
        if not self.is_attached:
            return
        self._is_outdated = self._is_cut = True
        if isinstance(trouble.error, NotFoundError):
            self._warn(f"{printable(self._called)} was deleted; q goes back, u undoes what discarded it")
        else:
            self._app.tell_trouble(trouble)

    def _read_more(self) -> None:
        """Read the lines of the next files, beginning with the one on the screen."""
        assert self.reviewed is not None
        files = self.reviewed.unread(self._diff.at[0])
        if files:
            paths = [file.path for file in files]
            self._app.ask(
                partial(read_files, branch=self.reviewed.branch.id, paths=paths), partial(self._lines_came, self._generation),
                self._failed,
            )  # fmt: skip

    def _lines_came(self, generation: int, found: "dict[bytes, ChangedFile | ReviewedFile]") -> None:
        if generation != self._generation or self.reviewed is None or not self.is_attached:
            return
        numbers = []
        for number, file in enumerate(self.reviewed.files):
            if file.path in found and not file.is_read:
                fill(file, found[file.path], self._before.get(file.path))
                self._recall(file)
                numbers.append(number)
                self._tree.mark(number)
        self._diff.remeasure(numbers)
        if self._diff.at[1] < 0 and self._diff.at[0] in numbers:
            self._diff.go_to_file(self._diff.at[0])
        self._say_state()
        self._read_more()

    def _recall(self, file: "FileUnderReview") -> None:
        assert self.reviewed is not None
        if (self.reviewed.branch.id, file.path, file.version) in self._app.viewed:
            file.is_viewed = file.is_folded = True

    def _look(self) -> None:
        """Look whether the branch has changed."""
        if self.reviewed is None or self._is_looking or not self.is_current:
            return
        self._is_looking = True
        self._app.ask(
            partial(_look_at, ref=self.reviewed.branch.id, noted=bool(self.reviewed.notes)), self._looked, self._not_looked
        )

    def _looked(self, found: "tuple[wire.Branch, list[wire.BranchNote]]") -> None:
        self._is_looking = False
        now, notes = found
        if self.reviewed is None or not self.is_attached or now.id != self.reviewed.branch.id:
            return
        seen = self.reviewed.branch
        if now.name != seen.name:
            self.reviewed.branch = seen = msgspec.structs.replace(seen, name=now.name)
            self._say_state()
        if notes != self.reviewed.notes:
            self._notes_came(notes)
        self._is_outdated |= has_changed(seen, now)
        if has_changed(seen, now):
            self._warn(f"{printable(now.name)} has changed since it was read: r reads it again")
        elif self._is_cut:
            self._warn("not all was read: r reads it again")
        elif not self._is_outdated:
            self._warn("")

    def _notes_came(self, notes: "Sequence[wire.BranchNote]") -> None:
        """Show notes that were read again."""
        if self.reviewed is None or not self.is_attached:
            return
        numbers = self.reviewed.note(notes)
        self._diff.remeasure(numbers)
        for number in numbers:
            self._tree.mark(number)
        self._say_state()

    def _not_looked(self, trouble: "Trouble") -> None:
        self._is_looking = False
        if isinstance(trouble.error, NotFoundError):
            self._is_outdated = True
            self._warn(f"{printable(self._called)} was deleted; q goes back, u undoes what discarded it")
        else:
            self._warn(f"{printable(trouble.message)}; trying again")

    # -- what it says

    @property
    def _called(self) -> str:
        return self.reviewed.branch.name if self.reviewed is not None else self._ref

    def _say(self, text: str) -> None:
        self.query_one(HeadLine).say(text)

    def _warn(self, text: str) -> None:
        if not self.is_attached:
            return
        self.query_one(WarningLine).say(text)

    def _say_state(self) -> None:
        if self.reviewed is None:
            return
        self._say(self.reviewed.summary)

    def on_diff_view_moved(self) -> None:
        """Let the tree follow the diff."""
        self._tree.point(self._diff.at[0])

    def on_tree_node_selected(self, event: FilesTree.NodeSelected[int]) -> None:
        """Go to a file of the tree."""
        if event.node.data is not None:
            self._diff.go_to_file(event.node.data)
            self._diff.focus()

    def on_files_tree_chosen(self, event: FilesTree.Chosen) -> None:
        """Choose a file in the tree."""
        self._take_file(event.number)

    # -- choosing

    @property
    def _file(self) -> "FileUnderReview | None":
        files = self.reviewed.files if self.reviewed is not None else []
        return files[self._diff.at[0]] if self._diff.at[0] < len(files) else None

    def _changed(self, number: int) -> None:
        self._tree.mark(number)
        self._diff.refresh_all()
        self._say_state()

    def action_choose(self) -> None:
        """Choose the hunk, or not."""
        file, (number, choice) = self._file, self._diff.at
        if file is None:
            return
        if 0 <= choice < len(file.choices) and not file.is_folded:
            file.choices[choice].is_taken = not file.choices[choice].is_taken
            self._changed(number)
        else:
            self._take_file(number)

    def action_toggle_file(self) -> None:
        """Choose all hunks of the file, or none."""
        self._take_file(self._diff.at[0])

    def _take_file(self, number: int) -> None:
        if self.reviewed is not None and number < len(self.reviewed.files):
            file = self.reviewed.files[number]
            if not file.choices:
                said = "goes with the whole branch only" if file.is_read else "is being read"
                self.notify(f"{file.shown_path} {said}.", timeout=2, markup=False)
            file.take(is_taken=not file.is_wholly_taken)
            self._changed(number)

    def action_toggle_all(self) -> None:
        """Choose all hunks of the branch, or none."""
        files = [file for file in (self.reviewed.files if self.reviewed is not None else []) if file.choices]
        is_taken = not all(file.is_wholly_taken for file in files)
        for file in files:
            file.take(is_taken=is_taken)
        for number in range(len(self.reviewed.files) if self.reviewed is not None else 0):
            self._tree.mark(number)
        self._diff.refresh_all()
        self._say_state()

    def action_split(self) -> None:
        """Split the hunk."""
        file, (number, choice) = self._file, self._diff.at
        if file is None or not 0 <= choice < len(file.choices):
            return
        if file.split(choice):
            self._diff.remeasure([number])
            self._changed(number)
        else:
            self.notify("This hunk has only one place where lines differ.", timeout=2)

    def action_viewed(self) -> None:
        """Mark the file as viewed, fold it, and go on; or take the mark away."""
        file, number = self._file, self._diff.at[0]
        if file is None or self.reviewed is None or not file.is_read:
            return
        file.is_viewed = file.is_folded = not file.is_viewed
        seen = self.reviewed.branch.id, file.path, file.version
        self._app.viewed.add(seen) if file.is_viewed else self._app.viewed.discard(seen)
        self._diff.remeasure([number])
        self._changed(number)
        last = number + 1 >= len(self.reviewed.files)
        self._diff.go_to_file(number if last or not file.is_viewed else number + 1)

    def action_fold(self) -> None:
        """Fold or unfold the file."""
        file, number = self._file, self._diff.at[0]
        if file is not None:
            file.is_folded = not file.is_folded
            self._diff.remeasure([number])
            self._diff.go_to_file(number)

    # -- moving

    def action_hunk(self, step: int) -> None:
        """Go to the next hunk, or the previous one."""
        self._diff.next_hunk(1 if step > 0 else -1)

    def action_file(self, step: int) -> None:
        """Go to the next file, or the previous one."""
        self._diff.next_file(1 if step > 0 else -1)

    def action_tree(self) -> None:
        """Hide or show the tree."""
        self._tree.display = not self._tree.display
        self._diff.focus()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool:
        """Let a field have the key that begins a search."""
        return action != "search" or not isinstance(self.focused, Input)

    def action_search(self) -> None:
        """Ask for a word."""
        self._search.begin()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Go to the next file with the word in its path."""
        event.input.display = False
        self._diff.focus()
        files = self.reviewed.files if self.reviewed is not None else []
        found = self._search.found([file.shown_path for file in files], self._diff.at[0])
        if event.value and found is not None:
            self._diff.go_to_file(found)
        elif event.value:
            self.notify(f"No path has {printable(event.value)}.", timeout=2, markup=False)

    def action_back(self) -> None:
        """Leave the search, or the screen."""
        if self._search.display:
            self._search.display = False
            self._diff.focus()
        elif len(self.app.screen_stack) > 2:
            self.app.pop_screen()
        else:
            self._app.action_leave()

    def action_keys(self) -> None:
        """Show the keys."""
        self.app.push_screen(KeyHelp("Keys on the screen of a branch", key_tables.BRANCH))

    def action_note(self) -> None:
        """Write a note on the hunk or file."""
        self._notes.write()

    def action_notes(self) -> None:
        """Show all notes."""
        self._notes.list()

    # -- acts

    def _done(self, act: Act) -> None:
        if act.verb == "discard" and self._called != "main":
            self._is_outdated = True
            self._warn(f"{printable(self._called)} was discarded; q goes back, u brings it back")
            return
        if self.reviewed is not None and act.selection is not None:
            for file in self.reviewed.files:  # what was done is not chosen any more
                file.take(is_taken=False)
        self.action_reread()

    def _refused(self, trouble: "Trouble") -> None:
        if isinstance(trouble.error, StaleError):
            self.action_reread()

    def action_do(self, verb: Verb) -> None:
        """Commit, merge or take back what was chosen; discard the branch; undo the last act."""
        if self.reviewed is not None:
            BranchActs(self._app, self.reviewed, self._done, self._refused, self._settle).begin(verb)

    def action_conflicts(self) -> None:
        """Show the conflicts that a merge left."""
        if self.reviewed is not None:
            self._settle(self.reviewed.branch.id, self.reviewed.branch.name)

    def _settle(self, branch: str, name: str) -> None:
        self.app.push_screen(ConflictScreen(branch, name), lambda _: self.action_reread())


def _look_at(daemon: ControlClient, ref: str, *, noted: bool) -> "tuple[wire.Branch, list[wire.BranchNote]]":
    """Return the branch, and its notes if it had or has some."""
    branch = daemon.show_branch(ref)
    return branch, daemon.list_notes(branch.id, resolved=True) if noted or branch.notes else []
