"""The tree of changed files beside the diff: directories, and for each file its box, its counts and whether it was viewed."""

from rich.text import Text
from textual.binding import Binding
from textual.message import Message
from textual.widgets import Tree
from textual.widgets.tree import TreeNode

from agentfsd.cli.terminal_review.diff_view import box
from agentfsd.cli.terminal_review.reviewed_branch import FileUnderReview
from agentfsd.escape import quoted

_STATUS = {"A": "green", "D": "red", "R": "cyan"}


class FilesTree(Tree[int]):
    """The changed files by directory. A node's data is the number of its file."""

    DEFAULT_CSS = """
    FilesTree { width: 30%; min-width: 20; max-width: 44; background: ansi_default; padding: 0;
        border-right: solid $border-blurred;
        scrollbar-size-vertical: 1; scrollbar-size-horizontal: 0; overflow-x: hidden; }
    FilesTree:focus { background-tint: transparent 0%; border-right: solid $primary; }
    FilesTree > .tree--cursor { text-style: bold; background: ansi_default; color: ansi_default; }
    FilesTree:focus > .tree--cursor { text-style: reverse; background: ansi_default; color: ansi_default; }
    FilesTree > .tree--guides { color: ansi_default; text-style: dim; }
    """
    BINDINGS = [
        Binding("space", "choose_file", show=False),
        Binding("enter,right", "select_cursor", show=False),
    ]

    class Chosen(Message):
        """The box of a file was pressed. ``number``: the file."""

        def __init__(self, number: int) -> None:
            super().__init__()
            self.number = number

    def __init__(self) -> None:
        super().__init__("")
        self.show_root, self.guide_depth, self.auto_expand = False, 2, True
        self._leaves: dict[int, TreeNode[int]] = {}
        self._files: list[FileUnderReview] = []

    def show(self, files: list[FileUnderReview]) -> None:
        """Show other files."""
        self.clear()
        self._files, self._leaves = files, {}
        directories: dict[bytes, TreeNode[int]] = {b"": self.root}
        with self.app.batch_update():
            for number, file in enumerate(files):
                parent = self._directory(file.path.rpartition(b"/")[0], directories)
                self._leaves[number] = parent.add_leaf(self._label(file), number)
        self.root.expand()

    def _directory(self, path: bytes, known: dict[bytes, TreeNode[int]]) -> TreeNode[int]:
        if path not in known:
            above, _, name = path.rpartition(b"/")
            parent = self._directory(above, known)
            known[path] = parent.add(Text(f"{quoted(name)}/", style="bold"), expand=True)
        return known[path]

    def mark(self, number: int) -> None:
        """Draw the box and marks of a file again."""
        if number in self._leaves:
            self._leaves[number].set_label(self._label(self._files[number]))

    def point(self, number: int) -> None:
        """Move the cursor to a file."""
        node = self._leaves.get(number)
        if node is not None and node is not self.cursor_node:
            self.move_cursor(node)
            self.scroll_to_node(node, animate=False)

    def action_choose_file(self) -> None:
        """Press the box of the file at the cursor."""
        if self.cursor_node is not None and self.cursor_node.data is not None:
            self.post_message(self.Chosen(self.cursor_node.data))

    @staticmethod
    def _label(file: FileUnderReview) -> Text:
        name = quoted(file.path.rpartition(b"/")[2]) or "."
        style = "dim" if file.is_viewed else ""
        label = Text.assemble(
            (f"{box(file)} ", style), (f"{file.change.status} ", _STATUS.get(file.change.status, "yellow")), (name, style),
            no_wrap=True,
        )  # fmt: skip
        if file.counts is not None and any(file.counts):
            label.append(f" +{file.counts[0]}", "green").append(f" -{file.counts[1]}", "red")
        return label.append(" viewed", "dim") if file.is_viewed else label
