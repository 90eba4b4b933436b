"""What was acknowledged since the last commit of the database, in one small file that is written over and over.

A commit of SQLite writes a dozen pages; a record here is one write. Both survive SIGKILL. Records are numbered; those whose
numbers follow on the last one that the database has are replayed at the next start.
"""

import os
import struct
import zlib
from typing import Any

import msgspec

from agentfsd.errors import NO_ROOM

Statement = tuple[str, tuple[Any, ...]]

_FRAME = struct.Struct("<QII")  # number, length, checksum
_ROOMS_BYTES = (1 << 20, 1 << 17)  # taken in advance: an append never finds the disk full; the second where it is almost so

_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(list[tuple[str | int, list[Any]]])


class Journal:
    """Any number of appends, then reset() once the database has them all."""

    def __init__(self, path: str, number: int) -> None:
        """*number*: of the last record that the database has. OSError when there is no room."""
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self.number = number
        self._at = 0
        self._known: dict[str, int] = {}  # a statement's text is written once, then it goes by number
        try:
            self._room = self._take_room()
        except BaseException:
            os.close(self._fd)
            raise

    def _take_room(self) -> int:
        """Bytes; of a journal that a killed daemon has left, its own."""
        for size in _ROOMS_BYTES[:-1]:
            try:
                os.posix_fallocate(self._fd, 0, size)
            except OSError as exc:
                if exc.errno not in NO_ROOM:
                    raise
            else:
                return size
        os.posix_fallocate(self._fd, 0, _ROOMS_BYTES[-1])
        return _ROOMS_BYTES[-1]

    def append(self, statements: list[Statement]) -> bool:
        """Keeps what one operation did; False when there is no room for it before the next reset()."""
        known, said = self._known, []
        new: list[str] = []
        for text, values in statements:
            number = known.get(text)
            if number is None:
                known[text] = len(known)
                new.append(text)
            said.append((text if number is None else number, values))
        body = _encoder.encode(said)
        frame = _FRAME.pack(self.number + 1, len(body), zlib.crc32(body)) + body
        if self._at + len(frame) > self._room:
            for text in new:
                del known[text]
            return False
        os.pwrite(self._fd, frame, self._at)
        self._at += len(frame)
        self.number += 1
        return True

    def reset(self) -> None:
        """The database has every record now."""
        self._at = 0
        self._known.clear()

    def records(self) -> list[list[Statement]]:
        """What the database has not got yet, oldest first; afterwards appends go on behind it."""
        content = os.pread(self._fd, _ROOMS_BYTES[0], 0)
        texts: list[str] = []
        found: list[list[Statement]] = []
        at, number = 0, self.number
        while at + _FRAME.size <= len(content):
            said_number, length, checksum = _FRAME.unpack_from(content, at)
            body = content[at + _FRAME.size : at + _FRAME.size + length]
            if said_number != number + 1 or zlib.crc32(body) != checksum:
                break
            statements = []
            for text, values in _decoder.decode(body):
                if isinstance(text, str):
                    texts.append(text)
                statements.append((text if isinstance(text, str) else texts[text], tuple(values)))
            found.append(statements)
            at, number = at + _FRAME.size + length, number + 1
        self.number, self._at = number, at
        self._known = {text: position for position, text in enumerate(texts)}
        return found

    def close(self) -> None:
        os.close(self._fd)
