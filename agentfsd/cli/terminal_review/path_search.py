"""The field in which a word of a path is searched. It is shown while somebody types in it."""

from collections.abc import Sequence

from textual.widgets import Input


class PathSearch(Input):
    """The field."""

    DEFAULT_CSS = "PathSearch { height: 1; border: none; display: none; }"

    def __init__(self) -> None:
        super().__init__(placeholder="a word in the path", compact=True)

    def begin(self) -> None:
        """Ask for a word. The focus comes at once: the next key may be there already."""
        self.display, self.value = True, ""
        self.screen.set_focus(self)

    def found(self, paths: Sequence[str], here: int) -> int | None:
        """Return the number of the next path behind *here* that has the word; None if there is none."""
        word = self.value.lower()
        order = [*range(here + 1, len(paths)), *range(min(here + 1, len(paths)))]
        return next((number for number in order if word in paths[number].lower()), None)
