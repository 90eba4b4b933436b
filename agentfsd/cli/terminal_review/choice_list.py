"""A list of which one row is chosen: that row stands in reverse, in the terminal's own colours."""

from textual.style import Style
from textual.widgets import OptionList


class ChoiceList(OptionList):
    """The list. Textual leaves `text-style: reverse` out of an option's style, and the chosen row would look like the others."""

    DEFAULT_CSS = """
    ChoiceList, ChoiceList:focus {
        height: auto; border: none; padding: 0; background: ansi_default; background-tint: transparent 0%;
        scrollbar-size-vertical: 1; }
    ChoiceList > .option-list--option-highlighted, ChoiceList:focus > .option-list--option-highlighted {
        background: ansi_default; color: ansi_default; text-style: none; }
    """

    def get_visual_style(self, *component_classes: str, partial: bool = False) -> Style:
        """Return the style of a part; that of the chosen row is reversed."""
        style = super().get_visual_style(*component_classes, partial=partial)
        return style + Style(reverse=True) if "option-list--option-highlighted" in component_classes else style
