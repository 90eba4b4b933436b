"""The screen of the conflicts that a merge has left in a branch: each side beside the others, and the decision."""

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, ClassVar, Literal, NamedTuple, cast

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Container, Vertical
from textual.content import Content
from textual.screen import Screen
from textual.widgets import Footer, Static
from textual.widgets.option_list import Option

from agentfs_client import wire
from agentfs_client.control import ControlClient
from agentfsd.cli.picking import conflict_versions
from agentfsd.cli.terminal_review import key_tables
from agentfsd.cli.terminal_review.act_flow import ActFlow
from agentfsd.cli.terminal_review.choice_list import ChoiceList
from agentfsd.cli.terminal_review.conflict_blocks import MarkedText, Taken
from agentfsd.cli.terminal_review.dialogues import Answer, Dialogue, KeyHelp
from agentfsd.cli.terminal_review.head_line import HeadLine
from agentfsd.cli.terminal_review.review_acts import Act, next_undo
from agentfsd.cli.terminal_review.text_pane import TextPane, lines_of
from agentfsd.control.status_text import plural
from agentfsd.escape import printable, quoted

if TYPE_CHECKING:
    from agentfsd.cli.terminal_review.review_app import ReviewApp, Trouble

How = Literal["ours", "theirs", "marked"]
_SIDES: tuple[conflict_versions.Side, ...] = ("base", "ours", "theirs")
_WIDE = 110  # columns from which on the sides stand side by side
_AROUND, _AROUND_NARROW = 4, 1  # settled lines that are shown around a block


class PathVersions(NamedTuple):
    """The versions of a path. ``now``: as the branch has it."""

    path: bytes
    sides: dict[conflict_versions.Side, wire.ConflictVersionReply]
    now: wire.ConflictVersionReply


class ConflictScreen(Screen[None]):
    """The conflicts of a branch.

    Args:
        branch: Its id.
        name: Its name.
    """

    CSS = """
    ConflictScreen ChoiceList { height: auto; max-height: 30%; }
    ConflictScreen #sides { height: 1fr; layout: vertical; }
    ConflictScreen #sides.wide { layout: horizontal; }
    ConflictScreen #sides > Vertical { width: 1fr; height: 1fr; }
    ConflictScreen .side { text-style: bold; height: 1; }
    """
    AUTO_FOCUS: ClassVar[str] = "ChoiceList"
    BINDINGS = [
        Binding("o", "block('ours')", "ours"),
        Binding("t", "block('theirs')", "theirs"),
        Binding("b", "block('both')", "both", show=False),
        Binding("O", "path('ours')", "path: ours", show=False),
        Binding("T", "path('theirs')", "path: theirs", show=False),
        Binding("M", "path('marked')", show=False),
        Binding("j", "next_block(1)", "block", key_display="j/k"),
        Binding("k", "next_block(-1)", show=False),
        Binding("n", "next_path(1)", "path", key_display="n/p"),
        Binding("p", "next_path(-1)", show=False),
        Binding("e", "edit", "edit"),
        Binding("w", "whole", show=False),
        Binding("f", "finish", "finish"),
        Binding("X", "abort", "take back"),
        Binding("u", "undo", show=False),
        Binding("r", "reread", show=False),
        Binding("question_mark", "keys", "keys", key_display="?"),
        Binding("q,escape", "leave", "back"),
    ]

    def __init__(self, branch: str, name: str) -> None:
        super().__init__()
        self._branch, self._called = branch, name
        self._reply: wire.ConflictsReply | None = None
        self._at, self._block_at = 0, 0
        self._versions: PathVersions | None = None
        self._text: MarkedText | None = None
        self._is_whole = False

    @property
    def _app(self) -> "ReviewApp":
        return cast("ReviewApp", self.app)

    def compose(self) -> ComposeResult:
        """Build the screen."""
        yield HeadLine("reading ...")
        yield ChoiceList()
        yield Static("", id="said")
        with Container(id="sides"):
            for side in _SIDES:
                with Vertical():
                    yield Static("", classes="side", id=f"title-{side}")
                    yield TextPane(id=f"pane-{side}")
        yield Footer(show_command_palette=False, compact=True)

    def on_mount(self) -> None:
        """Read the conflicts."""
        self.on_resize()
        self.action_reread()

    def on_resize(self) -> None:
        """Put the sides beside each other where there is room."""
        self.query_one("#sides").set_class(self.app.size.width >= _WIDE, "wide")

    # -- reading

    def action_reread(self) -> None:
        """Read the conflicts again."""
        self._app.ask(lambda daemon: daemon.conflicts(self._branch), self._came)

    def _came(self, reply: wire.ConflictsReply) -> None:
        if not self.is_attached:
            return
        self._reply = reply
        options = self.query_one(ChoiceList)
        at = min(self._at, max(0, len(reply.conflicts) - 1))
        options.clear_options()
        options.add_options([Option(self._label(conflict)) for conflict in reply.conflicts])
        undecided = sum(not conflict.decided for conflict in reply.conflicts)
        if reply.state == "none":
            said = f"{printable(self._called)} has no unfinished merge"
        else:
            left = f"{plural(undecided, 'conflict')} undecided" if undecided else "all is decided: f finishes the merge"
            said = f"merge of {printable(', '.join(reply.sources))} into {printable(self._called)}: {left}"
        self.query_one(HeadLine).say(said)
        if reply.conflicts:
            self._at = at
            options.highlighted = at
            self._read_path()
        else:
            self._versions = self._text = None
            self._show()

    def _label(self, conflict: wire.LeftOpenConflict) -> Content:
        state = (conflict.decided or "undecided", "ansi_green" if conflict.decided else "ansi_red")
        return Content.assemble(
            state, f"  {quoted(conflict.path_bytes) or '.'}  ", (f"{conflict.kind}: {printable(conflict.message)}", "dim")
        )

    @property
    def _conflict(self) -> wire.LeftOpenConflict | None:
        conflicts = self._reply.conflicts if self._reply is not None else []
        return conflicts[self._at] if self._at < len(conflicts) else None

    def on_option_list_option_highlighted(self, event: ChoiceList.OptionHighlighted) -> None:
        """Show another path."""
        if event.option_index != self._at:
            self._at, self._block_at = event.option_index, 0
            self._read_path()

    def _read_path(self) -> None:
        conflict = self._conflict
        if conflict is not None and conflict.kind != "under-way":
            self._app.ask(partial(_versions, path=conflict.path_bytes, branch=self._branch), self._path_came)

    def _path_came(self, found: PathVersions) -> None:
        conflict = self._conflict
        if not self.is_attached or conflict is None or conflict.path_bytes != found.path:
            return
        before = self._text
        self._versions = found
        self._text = (
            MarkedText(found.now.data) if found.now.kind == "file" and conflict.markers and not conflict.decided else None
        )
        if self._text is not None:
            self._text.end_as(found.sides["ours"].data, found.sides["theirs"].data)
        if self._text is not None and before is not None and before.text == self._text.text:
            self._text = before  # with what was decided of it
        if self._text is not None and not self._text.blocks:
            self._text = None
        self._show()

    # -- showing

    def _show(self) -> None:
        blocks = self._text.blocks if self._text is not None else []
        self._block_at = min(self._block_at, max(0, len(blocks) - 1))
        self.query_one("#said", Static).update(self._said())
        for side in _SIDES:
            title, lines = self._side(side)
            self.query_one(f"#title-{side}", Static).update(Text(title, no_wrap=True, overflow="ellipsis"))
            self.query_one(f"#pane-{side}", TextPane).show(lines)

    def _said(self) -> Text:
        if self._text is None:
            conflict = self._conflict
            keys = "O takes ours, T theirs, M says it is right as it is" if conflict is not None and not conflict.decided else ""
            return Text(
                keys
                if conflict is None or conflict.kind != "under-way"
                else "git has a merge to finish there: `git commit` in the branch"
            )
        blocks = self._text.blocks
        taken = blocks[self._block_at].taken
        return Text(
            f"block {self._block_at + 1} of {len(blocks)}: {f'take {taken}' if taken else 'undecided'}; "
            f"{sum(bool(block.taken) for block in blocks)} decided",
        )

    def _side(self, side: conflict_versions.Side) -> tuple[str, list[tuple[str, str]]]:
        """Return the title of a side, and its lines with their styles."""
        reply, versions = self._reply, self._versions
        if reply is None or versions is None or self._conflict is None:
            return "", []
        whose = {"base": "base (before both)", "ours": f"ours ({self._called})", "theirs": f"theirs ({self._conflict.source})"}[
            side
        ]
        version = versions.sides[side]
        if version.kind == "none":
            return printable(f"{whose}: it does not exist there"), []
        if version.kind != "file":
            return printable(f"{whose}: {version.kind}"), lines_of(version.data, "")
        if b"\0" in version.data[:8000]:
            return printable(f"{whose}: binary, {plural(version.size, 'byte')}"), []
        if self._text is not None and not self._is_whole:
            block = self._text.blocks[self._block_at]
            before, after = self._text.around(block, _AROUND if self.app.size.width >= _WIDE else _AROUND_NARROW)
            own = {"base": block.base, "ours": block.ours, "theirs": block.theirs}[side]
            style = "bold green" if block.taken in (side, "both") and side != "base" else "bold"
            return printable(whose), [
                *lines_of(b"".join(before), "dim"),
                *lines_of(b"".join(own), style),
                *lines_of(b"".join(after), "dim"),
            ]
        return printable(whose), lines_of(version.data, "")

    # -- moving

    def action_next_path(self, step: int) -> None:
        """Go to another path."""
        options = self.query_one(ChoiceList)
        if options.option_count:
            options.highlighted = (self._at + step) % options.option_count

    def action_next_block(self, step: int) -> None:
        """Go to another block."""
        if self._text is not None:
            self._block_at = max(0, min(len(self._text.blocks) - 1, self._block_at + step))
            self._show()

    def action_whole(self) -> None:
        """Show all of the file, or only the block."""
        self._is_whole = not self._is_whole
        self._show()

    def action_leave(self) -> None:
        """Leave the screen."""
        self.dismiss(None)

    def action_keys(self) -> None:
        """Show the keys."""
        self.app.push_screen(KeyHelp("Keys on the screen of conflicts", key_tables.CONFLICTS))

    # -- deciding

    def _confirmed(
        self, question: str, lines: list[str], words: str, work: Callable[[ControlClient, int], wire.ConflictsReply]
    ) -> None:
        """Ask, and do the work in the merge that is shown now. Another merge is refused."""
        merge = self._reply.merge if self._reply is not None else 0

        def answered(value: str | None) -> None:
            if value == "yes":
                self._app.ask(lambda daemon: work(daemon, merge), self._decided, self._refused)

        self.app.push_screen(Dialogue(question, lines, [Answer("yes", words, "y"), Answer("", "Cancel", "n")]), answered)

    def _refused(self, trouble: "Trouble") -> None:
        self.action_reread()
        self._app.tell_trouble(trouble)

    def _decided(self, reply: wire.ConflictsReply) -> None:
        if reply.state in ("finished", "aborted"):
            what = "finished" if reply.state == "finished" else "taken back"
            sources = printable(", ".join(reply.sources))
            self._app.tell(
                f"The merge of {sources} into {printable(self._called)} was {what}.",
                ["Undo brings back what was there."],
                self._end,
            )
        elif reply.changed:
            listed = [quoted(each.path_bytes) for each in reply.changed[:10]]
            lines = [f"Other files were changed since: {', '.join(listed)}."]
            self._confirmed(
                "The merge was not taken back. Give up these changes, too?", lines, "Give them up",
                lambda daemon, merge: daemon.end_merge(self._branch, abort=True, force=True, merge=merge),
            )  # fmt: skip
        self._text = None if reply.resolved else self._text
        self.action_reread()

    def _end(self) -> None:
        if self.is_current:
            self.dismiss(None)

    def action_block(self, side: Taken) -> None:
        """Decide a block; with the last one, ask whether the file is written. Without blocks, decide the path."""
        if self._text is None:
            if side in ("ours", "theirs"):
                self.action_path(cast("How", side))
            return
        block = self._text.blocks[self._block_at]
        block.taken = "" if block.taken == side else side
        if self._text.is_decided:
            self._show()
            self._write()
            return
        if block.taken:
            blocks = self._text.blocks
            later = [*range(self._block_at + 1, len(blocks)), *range(self._block_at)]
            self._block_at = next(number for number in later if not blocks[number].taken)
        self._show()

    def _write(self) -> None:
        text, conflict = self._text, self._conflict
        if text is None or conflict is None:
            return
        path, seen, content = conflict.path_bytes, self._seen(), text.result()
        if len(content) > wire.MAX_DATA_BYTES:
            self._app.tell(
                f"{quoted(path)} is too large to be written from here.", ["Edit it in the branch, and M it; or O or T."]
            )
            return
        self._confirmed(
            f"Write {quoted(path)} with these decisions?",
            [f"The file in {printable(self._called)} gets the chosen side of {plural(len(text.blocks), 'block')}."], "Write",
            lambda daemon, merge: daemon.resolve([path], "edited", self._branch, content=content, seen=seen, merge=merge),
        )  # fmt: skip

    def _seen(self) -> str:
        """Name the version of the chosen path that is shown; "" while it is being read."""
        conflict, versions = self._conflict, self._versions
        return versions.now.seen if versions is not None and conflict and versions.path == conflict.path_bytes else ""

    def action_path(self, how: How) -> None:
        """Decide the whole path."""
        conflict, seen = self._conflict, self._seen()
        if conflict is None or (not seen and conflict.kind != "under-way"):
            return
        path, shown = conflict.path_bytes, quoted(conflict.path_bytes) or "."
        if how == "marked":
            question, said = f"Is {shown} right as it is now?", "It is taken as it is, or that it is gone."
        else:
            whose = self._called if how == "ours" else conflict.source
            question = f"Take {how} of {shown}?"
            what = "the lines that clash are" if conflict.markers else "it is"
            said = f"In {printable(self._called)}, {what} as in {printable(whose)}; later edits of it are replaced."
        self._confirmed(
            question, [said], "Yes", lambda daemon, merge: daemon.resolve([path], how, self._branch, seen=seen, merge=merge)
        )  # fmt: skip

    def action_edit(self) -> None:
        """Edit the file."""
        conflict = self._conflict
        if conflict is None:
            return
        trouble = self._app.edit(lambda daemon: conflict_versions.edit(daemon, conflict.path_bytes, self._branch))
        if trouble is not None:
            self._app.tell_trouble(trouble)
        self.action_reread()

    def action_finish(self) -> None:
        """Finish the merge."""
        reply = self._reply
        if reply is None or reply.state == "none":
            return
        undecided = [conflict for conflict in reply.conflicts if not conflict.decided]
        if undecided:
            self._app.tell(f"{plural(len(undecided), 'conflict')} undecided: the merge cannot be finished yet.", [])
            return
        said = f"{printable(self._called)} counts as merged with {printable(', '.join(reply.sources))}, and can be committed."
        self._confirmed("Finish the merge?", [said], "Finish", lambda daemon, merge: daemon.end_merge(self._branch, merge=merge))

    def action_abort(self) -> None:
        """Take the merge back."""
        if self._reply is not None and self._reply.state != "none":
            said = f"{printable(self._called)} becomes again what it was before the merge, and the decisions are gone."
            self._confirmed(
                "Take the merge back?", [said], "Take back",
                lambda daemon, merge: daemon.end_merge(self._branch, abort=True, merge=merge),
            )  # fmt: skip

    def action_undo(self) -> None:
        """Undo the last act."""

        def begin(found: tuple[wire.Branch, wire.UndoEntry | None]) -> None:
            ActFlow(self._app, lambda _: self.action_reread()).begin(Act("undo", found[0], entry=found[1]))

        self._app.ask(lambda daemon: (daemon.show_branch(self._branch), next_undo(daemon)), begin)


def _versions(daemon: ControlClient, path: bytes, branch: str) -> PathVersions:
    sides = {side: conflict_versions.read(daemon, path, side, branch) for side in _SIDES}
    return PathVersions(path, sides, conflict_versions.read(daemon, path, "now", branch))
