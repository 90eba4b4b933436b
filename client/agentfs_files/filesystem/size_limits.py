"""The size limits of a file system in one record, so that a backend can have others."""

from dataclasses import dataclass

DEFAULT_READ_LIMIT = 2_000  # lines
READ_ENTIRE_FILE = -1  # as the limit of a read


@dataclass(slots=True, frozen=True)
class Limits:
    """Sizes in bytes, lengths in characters. The limits for depth and segments apply to new paths only.

    Source: the limits table of the file system protocol, version 3.
    """

    chunk_bytes: int = 65_536
    max_path_depth: int = 16
    max_segment_length: int = 80
    max_grep_matches: int = 1_000
    max_read_bytes: int = 32 << 20
    max_write_bytes: int = 32 << 20
    max_archive_bytes: int = 16 << 30  # unpacked size of an import
    default_read_lines: int = DEFAULT_READ_LIMIT


DEFAULT_LIMITS = Limits()
SYSTEM_LIMITS = Limits(max_path_depth=2_048, max_segment_length=255)  # PATH_MAX, NAME_MAX: what other programs can create


def without_path_limits(filesystem: object) -> None:
    """Let a file system create what Linux can, for programs that know nothing of the specification's limits for paths.

    Limits that the caller chose stay, also where they equal the specification's.
    """
    if getattr(filesystem, "limits", None) is DEFAULT_LIMITS:
        filesystem.limits = SYSTEM_LIMITS  # type: ignore[attr-defined]
