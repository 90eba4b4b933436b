"""Return a part of a file by bytes or by lines. The rest of the file is read in chunks and dropped."""

from agentfs_files.filesystem.file_results import ReadBytesResult, ReadResult
from agentfs_files.filesystem.file_streams import BinaryReader, not_text
from agentfs_files.filesystem.size_limits import READ_ENTIRE_FILE, Limits


def read_bytes(reader: BinaryReader, offset: int, limit: int | None, limits: Limits) -> ReadBytesResult:
    """Return bytes of a file. Raises ValueError for a negative offset or limit, and for a result that is too large."""
    if offset < 0:
        raise ValueError(f"offset must be non-negative, not {offset}")
    if limit is not None and limit < 0:
        raise ValueError(f"limit must be non-negative, not {limit}")
    size = max(0, reader.size - offset)
    if limit is not None:
        size = min(size, limit)
    if size > limits.max_read_bytes:
        raise _too_large(reader, limits)
    reader.seek(offset)
    content = reader.read(size)
    truncated = offset + len(content) < reader.size
    return ReadBytesResult(content, reader.path, reader.size, offset, READ_ENTIRE_FILE if limit is None else limit, truncated)


def read_lines(reader: BinaryReader, offset: int, limit: int | None, limits: Limits) -> ReadResult:
    """Return lines of a file. Raises ValueError like read_bytes(), and UnicodeDecodeError if the lines are not UTF-8."""
    if offset < 0:
        raise ValueError(f"offset must be non-negative, not {offset}")
    wanted = limits.default_read_lines if limit is None else limit
    if wanted < READ_ENTIRE_FILE:
        raise ValueError(f"limit must be non-negative, or -1 for the whole file, not {wanted}")
    window = _Window(reader, offset, None if wanted == READ_ENTIRE_FILE else offset + wanted, limits)
    for chunk in reader:
        window.add(chunk)
    return ReadResult(window.text(), reader.path, window.total_lines, offset, wanted, window.is_cut)


class _Window:
    """Collect the lines from *first* to before *end* (None: to the end) from chunks."""

    def __init__(self, reader: BinaryReader, first: int, end: int | None, limits: Limits) -> None:
        self._reader, self._first, self._end, self._limits = reader, first, end, limits
        self._line = 0  # the line in which the next chunk begins
        self._position = self._start = 0
        self._parts: list[bytes] = []
        self._size = 0
        self._is_open = False  # whether the last line has no newline yet

    def add(self, chunk: bytes) -> None:
        newlines = chunk.count(b"\n")
        if self._line + newlines >= self._first and (self._end is None or self._line < self._end):
            self._keep(chunk)
        self._line += newlines
        self._position += len(chunk)
        self._is_open = not chunk.endswith(b"\n")

    def _keep(self, chunk: bytes) -> None:
        start = _after_lines(chunk, self._first - self._line)
        end = len(chunk) if self._end is None else _after_lines(chunk, self._end - self._line)
        if not self._parts:
            self._start = self._position + start
        self._parts.append(chunk[start:end])
        self._size += end - start
        if self._size > self._limits.max_read_bytes:
            raise _too_large(self._reader, self._limits)

    def text(self) -> str:
        try:
            return b"".join(self._parts).decode()
        except UnicodeDecodeError as exc:
            raise not_text(exc, self._reader.path, self._start) from None

    @property
    def total_lines(self) -> int:
        return self._line + self._is_open

    @property
    def is_cut(self) -> bool:
        return self._end is not None and self._end < self.total_lines


def _after_lines(chunk: bytes, count: int) -> int:
    """Return the position after *count* newlines, or the end."""
    position = 0
    for _ in range(count):
        position = chunk.find(b"\n", position) + 1
        if not position:
            return len(chunk)
    return position


def _too_large(reader: BinaryReader, limits: Limits) -> ValueError:
    return ValueError(
        f"{reader.path} has {reader.size} bytes, and at most {limits.max_read_bytes} are returned at once; "
        "a smaller limit, or open_read(), reads it piece by piece"
    )
