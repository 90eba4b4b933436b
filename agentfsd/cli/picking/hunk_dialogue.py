"""Asks about each hunk whether to take it. The keys are those of `git add -p`."""

import re
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import click

from agentfsd.cli.output import diff_views, printing
from agentfsd.review.hunks import BadEditError, ChangedFile, Hunk, Picks, joined

_HELP = {
    "y": "{verb} this hunk",
    "n": "do not {verb} this hunk",
    "q": "quit: neither this hunk nor the remaining ones",
    "a": "{verb} this hunk and all later hunks of the file",
    "d": "neither this hunk nor the later hunks of the file",
    "g": "go to a hunk by its number",
    "/": "go to the next hunk that matches a regular expression",
    "j": "leave this hunk undecided, go to the next undecided one",
    "J": "leave this hunk undecided, go to the next one",
    "k": "leave this hunk undecided, go to the previous undecided one",
    "K": "leave this hunk undecided, go to the previous one",
    "s": "split this hunk into smaller ones",
    "e": "edit this hunk",
    "?": "this list",
}
_WHAT = {"whole": "this file", "rename": "this renaming", "mode": "this mode", "lines": "this hunk"}
_EDIT_HELP = """\
# To leave out a line with '-', make the '-' a space. To leave out a line with '+', delete it.
# Lines that begin with # are left out. With no line left, nothing is changed.
"""


@dataclass(slots=True)
class _Entry:
    file: ChangedFile
    hunk: Hunk
    is_taken: bool | None = None


def choose(files: Iterable[ChangedFile], verb: str) -> Picks:
    """Ask about every hunk of some files. End of file is `q`, and what was taken before counts.

    Args:
        files: The files.
        verb: What is done with a hunk that is taken: commit, merge, restore, discard.
    """
    return _Dialogue(files, verb).picks()


class _Dialogue:
    def __init__(self, files: Iterable[ChangedFile], verb: str) -> None:
        self._verb, self._colour = verb, diff_views.wants_colour("auto")
        self._entries = [_Entry(file, hunk) for file in files for hunk in file.hunks]
        self._at, self._file = 0, None if not self._entries else self._entries[0].file
        self._is_over = not self._entries

    def picks(self) -> Picks:
        shown_of: ChangedFile | None = None
        while not self._is_over:
            entry = self._entries[self._at]
            self._show(entry, head=entry.file is not shown_of)
            shown_of = entry.file
            while not self._answer(entry, *self._ask(entry)):
                pass
        return joined(self._picked())

    def _picked(self) -> Iterator[Picks]:
        for file in dict.fromkeys(entry.file for entry in self._entries):
            own = [entry for entry in self._entries if entry.file is file]
            taken = [entry.hunk for entry in own if entry.is_taken]
            picks = file.pick(taken, is_all=len(taken) == len(own))
            if taken and not picks.paths:
                printing.note(f"{printing.quoted(file.path)} is left out: its new name was not taken")
            yield picks

    # -- one hunk

    def _show(self, entry: _Entry, *, head: bool) -> None:
        shown = entry.file.shown(entry.hunk)
        text = entry.file.head + shown if head else shown
        if entry.file.patch.note:
            text = b"# " + entry.file.patch.note.encode() + b"\n" + text
        from agentfsd.cli.output import patch_colours as paint  # imported here, as loading pygments takes longer than the rest

        lines = paint.coloured(text, entry.file.path) if self._colour else paint.plain(text)
        for line in lines:
            printing.say_ready(line)
        if entry.hunk.kind == "whole" and entry.file.patch.is_binary:
            printing.say(f"Binary file, {max(0, entry.file.patch.old_size)} -> {max(0, entry.file.patch.new_size)} bytes")

    def _keys(self, entry: _Entry) -> list[str]:
        """Return the keys that do something at this hunk."""
        here, entries = self._at, self._entries
        keys = ["y", "n", "q", "a", "d"]
        keys += ["j"] if any(one.is_taken is None for one in entries[here + 1 :]) else []
        keys += ["J"] if here + 1 < len(entries) else []
        keys += ["k"] if any(one.is_taken is None for one in entries[:here]) else []
        keys += ["K"] if here else []
        keys += ["g", "/"] if len(entries) > 1 else []
        keys += ["s"] if len(entry.hunk.runs) > 1 else []
        is_text = entry.hunk.kind == "lines" and entry.hunk.edited is None
        keys += ["e"] if is_text and self._verb != "discard" else []  # what is taken back is as it was
        return [*keys, "?"]

    def _ask(self, entry: _Entry) -> tuple[str, str]:
        """Return a key, and what was written behind it."""
        keys = self._keys(entry)
        question = (
            f"({self._at + 1}/{len(self._entries)}) {self._verb.capitalize()} {_WHAT[entry.hunk.kind]} [{','.join(keys)}]? "
        )
        while True:
            click.echo(click.style(question, bold=True, fg="blue") if self._colour else question, nl=False)
            sys.stdout.flush()
            line = sys.stdin.readline()
            if not line:
                click.echo()
                return "q", ""
            answer = line.strip()
            if answer[:1] in keys and (len(answer) == 1 or answer[:1] in "g/"):
                return answer[:1], answer[1:].strip()
            if answer:
                printing.say(
                    f"{answer!r} is none of the keys here" if answer[:1] not in _HELP else "that does nothing at this hunk"
                )
            self._explain(keys)

    def _explain(self, keys: Iterable[str]) -> None:
        for key in keys:
            printing.say(f"{key} - {_HELP[key].format(verb=self._verb)}")

    def _answer(self, entry: _Entry, key: str, rest: str) -> bool:
        """Do what a key says. Return whether there is another hunk to show."""
        if key == "?":
            self._explain(self._keys(entry))
            return False
        if key in "yn":
            entry.is_taken = key == "y"
            self._next_undecided()
        elif key in "ad":
            for one in self._entries[self._at :]:
                if one.file is entry.file and one.is_taken is None:
                    one.is_taken = key == "a"
            entry.is_taken = key == "a"
            self._next_undecided()
        elif key == "q":
            self._is_over = True
        elif key == "s":
            self._entries[self._at : self._at + 1] = [_Entry(entry.file, hunk) for hunk in entry.file.split(entry.hunk)]
            printing.say(f"Split into {len(entry.hunk.runs)} hunks.")
        elif key == "e":
            return self._edit(entry)
        else:
            return self._go(key, rest)
        return True

    def _next_undecided(self) -> None:
        later = range(self._at + 1, len(self._entries))
        found = next((index for index in [*later, *range(self._at)] if self._entries[index].is_taken is None), None)
        self._is_over = found is None
        self._at = self._at if found is None else found

    def _go(self, key: str, rest: str) -> bool:
        here, count = self._at, len(self._entries)
        if key in "JK":
            self._at += 1 if key == "J" else -1
            return True
        if key in "jk":
            range_ = range(here + 1, count) if key == "j" else range(here - 1, -1, -1)
            self._at = next(index for index in range_ if self._entries[index].is_taken is None)
            return True
        wanted = rest or self._read("Go to which hunk? " if key == "g" else "Search for which regular expression? ")
        if key == "g":
            if not wanted.isdecimal() or not 1 <= int(wanted) <= count:
                printing.say(f"{wanted!r} is no hunk: there are 1 to {count}")
                return False
            self._at = int(wanted) - 1
            return True
        return self._search(wanted)

    def _search(self, wanted: str) -> bool:
        try:
            pattern = re.compile(wanted.encode(errors="surrogateescape"))
        except re.error as exc:
            printing.say(f"{wanted!r} is no regular expression: {exc}")
            return False
        count = len(self._entries)
        for step in range(1, count + 1):
            index = (self._at + step) % count
            entry = self._entries[index]
            if pattern.search(entry.file.shown(entry.hunk)):
                self._at = index
                return True
        printing.say(f"no hunk matches {wanted!r}")
        return False

    @staticmethod
    def _read(question: str) -> str:
        click.echo(question, nl=False)
        sys.stdout.flush()
        return sys.stdin.readline().strip()

    def _edit(self, entry: _Entry) -> bool:
        try:
            text = click.edit(entry.file.shown(entry.hunk) + _EDIT_HELP.encode(), extension=".diff")
        except click.ClickException as exc:
            printing.say(exc.format_message())
            return False
        if not any(line and not line.startswith(b"#") for line in (text or b"").split(b"\n")):
            printing.say("nothing was changed")
            return False
        try:
            entry.hunk = entry.file.edited(entry.hunk, text or b"")
        except BadEditError as exc:
            printing.say(f"the edited hunk does not fit: {exc}")
            return False
        entry.is_taken = True
        self._next_undecided()
        return True
