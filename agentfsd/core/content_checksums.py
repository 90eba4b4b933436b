"""Checksums of the content objects of sealed layers. No process writes to these any more, so a change is damage.

The daemon computes them in the background. make() may run in any thread. keep() and scrubbing() use the
database and belong in the event loop's thread.
"""

import hashlib
from collections.abc import Callable, Generator, Iterator

from agentfsd.domain_errors import DamagedContent
from agentfsd.metadata import checksum_rows
from agentfsd.metadata.checksum_rows import ObjectChecksum
from agentfsd.metadata.row_store import Store
from agentfsd.types import Backstore, ContentFile

_CHUNK_BYTES = 1 << 18
_PAGE = 200  # checksums that one query reads
_DIGEST_BYTES = 16


def digesting(content: ContentFile) -> Generator[int, None, tuple[int, bytes]]:
    """Compute the digest of a content. Yield the size of each part in bytes; return (size in bytes, digest)."""
    digest, at = hashlib.blake2b(digest_size=_DIGEST_BYTES), 0
    while data := content.pread(_CHUNK_BYTES, at):
        digest.update(data)
        at += len(data)
        yield len(data)
    return at, digest.digest()


def make(backstore: Backstore, wanted: list[tuple[int, int]], rest: Callable[[int], object]) -> list[ObjectChecksum]:
    """Compute checksums of content objects, for a worker thread.

    Args:
        backstore: Holds the objects.
        wanted: (object, layer) of each.
        rest: Called with the size in bytes of each part that was read: it may wait, or raise OSError to skip the object.

    Returns:
        The checksums of the objects that could be read.
    """
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
    """Store the checksums of those objects that are still sealed."""
    with store.transaction():
        checksum_rows.put(store, made)


def scrubbing(store: Store, backstore: Backstore) -> Iterator[str]:
    """Read all objects that have a checksum, a part at each step. Yield "", or a sentence about an object that is damaged."""
    last = 0
    while found := checksum_rows.known(store, last, _PAGE):
        for seal in found:
            last = seal.object
            yield from _scrub(store, backstore, seal)


def _scrub(store: Store, backstore: Backstore, seal: ObjectChecksum) -> Iterator[str]:
    try:
        content = backstore.open(seal.object)
    except DamagedContent:  # consistency_check reports a lost object itself
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
