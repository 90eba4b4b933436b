"""Checksums of what sealed layers hold: nobody writes that any more, so what changes there is damage. Made in quiet moments.

Reading may happen in any thread; rows are read and written between two steps of the event loop.
"""

import hashlib
from collections.abc import Callable, Generator, Iterator

from agentfsd.domain_errors import DamagedContent
from agentfsd.metadata import checksum_rows
from agentfsd.metadata.checksum_rows import ObjectChecksum
from agentfsd.metadata.row_store import Store
from agentfsd.types import Backstore, ContentFile

_CHUNK_BYTES = 1 << 18
_PAGE = 200  # objects that are asked for at once
_DIGEST_BYTES = 16


def digesting(content: ContentFile) -> Generator[int, None, tuple[int, bytes]]:
    """Yields after each part how many bytes that were; returns size and digest."""
    found, at = hashlib.blake2b(digest_size=_DIGEST_BYTES), 0
    while data := content.pread(_CHUNK_BYTES, at):
        found.update(data)
        at += len(data)
        yield len(data)
    return at, found.digest()


def make(backstore: Backstore, wanted: list[tuple[int, int]], rest: Callable[[int], object]) -> list[ObjectChecksum]:
    """Of (object, layer); for a thread. *rest* is called with the bytes of each part. What cannot be read is left out."""
    made = []
    for number, layer in wanted:
        try:
            content = backstore.open(number)
        except DamagedContent:
            continue
        try:
            parts = digesting(content)
            while True:
                rest(next(parts))
        except StopIteration as end:
            made.append(ObjectChecksum(number, layer, *end.value))
        except OSError:
            continue
        finally:
            content.close()
    return made


def keep(store: Store, made: list[ObjectChecksum]) -> None:
    """Writes down those of objects that are sealed still."""
    with store.transaction():
        checksum_rows.put(store, made)


def scrubbing(store: Store, backstore: Backstore) -> Iterator[str]:
    """Reads what has a checksum, a part at each step; yields "" or a sentence about content that has changed."""
    last = 0
    while found := checksum_rows.known(store, last, _PAGE):
        for seal in found:
            last = seal.object
            yield from _scrub(store, backstore, seal)


def _scrub(store: Store, backstore: Backstore, seal: ObjectChecksum) -> Iterator[str]:
    try:
        content = backstore.open(seal.object)
    except DamagedContent:  # fsck says so
        return
    try:
        parts = digesting(content)
        while True:
            next(parts)
            yield ""
    except StopIteration as end:
        if end.value != (seal.size, seal.digest) and checksum_rows.holds(store, seal):
            yield f"object {seal.object} does not hold what it held when it was sealed"
    except OSError as exc:
        yield f"object {seal.object} cannot be read: {exc.strerror}"
    finally:
        content.close()
