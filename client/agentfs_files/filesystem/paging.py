"""Windows of a file: so many bytes, or so many lines, from a place on. The rest of the file goes by in chunks."""

from agentfs_files.filesystem.file_results import ReadBytesResult, ReadResult
from agentfs_files.filesystem.file_streams import BinaryReader, not_text
from agentfs_files.filesystem.size_limits import READ_ENTIRE_FILE, Limits


def read_bytes(reader: BinaryReader, offset: int, limit: int | None, limits: Limits) -> ReadBytesResult:
    """ValueError for a negative window, and for one that is too large to be returned at once."""
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
    """ValueError as above; UnicodeDecodeError where the window is no UTF-8."""
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
    """Lines *first* to before *end* (None: all) of the chunks that go by."""

    def __init__(self, reader: BinaryReader, first: int, end: int | None, limits: Limits) -> None:
        self._reader, self._first, self._end, self._limits = reader, first, end, limits
        self._line = 0  # which one the next chunk begins in
        self._position = self._start = 0
        self._parts: list[bytes] = []
        self._size = 0
        self._is_open = False  # the last line has no newline

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
    """The position behind *count* newlines, or the end."""
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
