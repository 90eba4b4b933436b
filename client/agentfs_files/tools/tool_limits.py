"""The limits of what a tool accepts and shows at once. They suit a model, and are lower than those of a file system."""

from dataclasses import dataclass


@dataclass(slots=True, frozen=True)
class ToolLimits:
    """Source: the tool limits of the file system protocol, versions 1 and 2. A file system itself accepts more."""

    write_characters: int = 48_000  # per write_file, and of the new text of an edit_file
    read_lines: int = 2_000  # per window
    line_characters: int = 2_000  # of one line; the rest of it is cut
    match_characters: int = 400  # of one line that grep shows
    result_characters: int = 100_000  # of all that a result shows
    entries: int = 1_000  # of ls and of glob
    matches: int = 1_000  # lines that grep shows
    counted_matches: int = 20_000  # lines that it counts, or finds files by


DEFAULT_TOOL_LIMITS = ToolLimits()
