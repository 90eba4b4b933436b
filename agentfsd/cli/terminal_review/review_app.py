"""The program that `agentfsd review` starts: asks the daemon in other threads, and shows screens."""

import asyncio
import os
import signal
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, ClassVar, TypeVar

from textual.app import App
from textual.binding import Binding
from textual.message import Message
from textual.screen import Screen
from textual.theme import BUILTIN_THEMES

from agentfs_client.control import ControlClient
from agentfs_client.errors import AgentFSError, DaemonGoneError
from agentfsd.cli.command_base import Failure
from agentfsd.cli.terminal_review.dialogues import Answer, Dialogue
from agentfsd.domain_errors import Refusal

_T = TypeVar("_T")

_PLAIN = (
    "block-cursor-background", "block-cursor-foreground", "block-cursor-blurred-background", "block-cursor-blurred-foreground",
    "block-hover-background", "footer-background", "footer-foreground", "footer-key-foreground", "footer-description-foreground",
    "footer-item-background", "footer-key-background", "footer-description-background", "input-cursor-background",
    "input-cursor-foreground", "border-blurred",
)  # fmt: skip

# The terminal's own colours: they fit its background, and 16 are enough. What is selected is shown in reverse.
_ANSI = BUILTIN_THEMES["ansi-dark"]
_THEME = replace(
    _ANSI, name="terminal", accent="ansi_cyan",
    variables={
        **_ANSI.variables, **dict.fromkeys(_PLAIN, "ansi_default"), "block-cursor-text-style": "reverse",
        "block-cursor-blurred-text-style": "bold", "input-cursor-text-style": "reverse", "border": "ansi_blue",
    },
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Trouble:
    """Why the daemon did not do what it was asked. ``error``: the exception, for its kind."""

    message: str
    hint: str
    error: Exception


class Answered(Message):
    """What another thread has found: ``deliver`` is called in the program's own thread."""

    def __init__(self, deliver: Callable[[], None]) -> None:
        super().__init__()
        self.deliver = deliver


def trouble_of(exc: Exception) -> Trouble:
    """Say an exception of the daemon, of its client or of the system in a sentence and a hint."""
    if isinstance(exc, AgentFSError | Refusal | Failure):
        return Trouble(exc.message, exc.hint, exc)
    if isinstance(exc, OSError):
        return Trouble(exc.strerror or str(exc), "", exc)
    return Trouble(f"internal error: {type(exc).__name__}: {exc}", "please report it", exc)


class ReviewApp(App[None]):
    """The program.

    Args:
        connect: Connects to the daemon, which may have been started again since the last time.
        place: The workspace, for people.
        first: Makes the first screen.
    """

    ENABLE_COMMAND_PALETTE: ClassVar[bool] = False
    ALLOW_SELECT: ClassVar[bool] = False
    CSS = """
    Screen { background: ansi_default; color: ansi_default; }
    ModalScreen { background: transparent; }
    ModalScreen > * { background: ansi_default; }
    Footer { background: ansi_default; }
    FooterKey .footer-key--key { text-style: bold; color: ansi_default; background: ansi_default; }
    FooterKey .footer-key--description { color: ansi_default; background: ansi_default; }
    DataTable { height: 1fr; background: ansi_default; overflow-x: hidden; scrollbar-size-vertical: 1; }
    DataTable > .datatable--header { text-style: bold underline; background: ansi_default; color: ansi_default; }
    DataTable > .datatable--cursor { text-style: reverse; background: ansi_default; color: ansi_default; }
    """
    BINDINGS = [
        Binding("ctrl+c", "leave", show=False, priority=True),
        Binding("ctrl+q", "leave", show=False, priority=True),
    ]

    def __init__(self, connect: Callable[[], ControlClient], place: str, first: "Callable[[], Screen[Any]]") -> None:
        super().__init__(ansi_color=True)
        self.connect, self.place, self._first = connect, place, first
        self.viewed: set[tuple[str, bytes, str]] = set()  # branch id, path, version
        self.under_way = ""  # what is being done
        self.register_theme(_THEME)
        self.theme = "terminal"

    def on_mount(self) -> None:
        """Show the first screen."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):  # or the terminal would stay as it is now
            loop.add_signal_handler(number, self.action_leave)
        if not self.is_headless:  # without its terminal, Textual would wait for it forever
            loop.add_signal_handler(signal.SIGHUP, os._exit, 128 + signal.SIGHUP)
        self.push_screen(self._first())

    def action_leave(self) -> None:
        """End the program; while something is being done, only when asked twice."""
        if self.under_way:
            self.notify(f"{self.under_way} is under way; again leaves it to its fate", severity="warning", timeout=3)
            self.under_way = ""
        else:
            self.exit()

    # -- the daemon

    def ask(
        self, what: Callable[[ControlClient], _T], then: Callable[[_T], None], failed: Callable[[Trouble], None] | None = None
    ) -> None:
        """Ask the daemon in another thread.

        Args:
            what: What to ask, over a conversation of its own.
            then: Gets the answer, in this thread.
            failed: Gets what went wrong; None: a window tells it.
        """

        def work() -> None:
            try:
                with self.connect() as daemon:
                    found = what(daemon)
            except Exception as exc:  # noqa: BLE001 - told in a window
                trouble = trouble_of(exc)
                self.post_message(Answered(lambda: (failed or self.tell_trouble)(trouble)))
            else:
                self.post_message(Answered(lambda: then(found)))

        threading.Thread(target=work, daemon=True).start()

    def on_answered(self, message: Answered) -> None:
        """Deliver what another thread has found."""
        message.deliver()

    def tell_trouble(self, trouble: Trouble) -> None:
        """Show a window with what went wrong."""
        gone = isinstance(trouble.error, DaemonGoneError)
        lines = ["Whether the last thing was done is not known: look before you repeat it."] if gone else []
        hint = [sentence(trouble.hint)] if trouble.hint else []
        self.tell(sentence(trouble.message), [*hint, *lines])

    def tell(self, title: str, lines: list[str], then: Callable[[], None] | None = None) -> None:
        """Show a window with something to read."""
        self.push_screen(Dialogue(title, lines, [Answer("", "OK", "o")]), lambda _: then() if then is not None else None)

    def edit(self, work: Callable[[ControlClient], None]) -> Trouble | None:
        """Give the terminal to another program until *work* returns. Return what went wrong."""
        try:
            with self.suspend(), self.connect() as daemon:
                os.write(1, b"\x1b[H\x1b[2J")
                work(daemon)
        except Exception as exc:  # noqa: BLE001 - told in a window
            return trouble_of(exc)
        return None


def sentence(text: str) -> str:
    """Return a text with a full stop. It may begin with a name, which keeps its small letter."""
    return text + ("" if text.endswith((".", "?", "!")) else ".")
