"""Enters decided files into the index of a git database, in the place of the conflict: what `git add` and `git rm` do.

git itself writes the index, in a workshop. The content is stored as it is: no filter of the workspace runs.
Source: git-update-index(1), gitrepository-layout(5).
"""

import hashlib
import os
import stat
import zlib
from collections.abc import Generator, Iterable

from agentfsd.core import inode_stat
from agentfsd.core.transplant import Transplant, attributes_of
from agentfsd.core.tree import Inode, Tree, join
from agentfsd.core.whole_contents import content_of
from agentfsd.repositories import git_config, reading
from agentfsd.repositories.index_times import unmerged_in
from agentfsd.repositories.reading import GitDatabase
from agentfsd.repositories.work_aside import aside
from agentfsd.repositories.workshop import GitFailed, Workshop
from agentfsd.repositories.workshop_inputs import Bundle

Progress = tuple[int, int, str]

_STAGED_BYTES = 64 << 20  # a larger file is left to `git add`: all requests would wait while it is packed


def unmerged(tree: Tree, database: bytes) -> set[bytes]:
    """Return the paths, in its work tree, that the index of a database has as conflicts."""
    index = reading.text(tree, join(database, b"index"), reading.REFS_BYTES)
    return unmerged_in(index, 32 if _is_sha256(tree, database) else 20) if index is not None else set()


def is_merging(tree: Tree, database: bytes) -> bool:
    """Return whether git has a merge to finish in a database."""
    return reading.has(tree, join(database, b"MERGE_HEAD"))


def has_merged(tree: Tree, database: bytes, commit: bytes) -> bool:
    """Return whether the commit that HEAD leads to is a merge of *commit*, or is *commit*. False if that cannot be told."""
    side = GitDatabase(b"")
    for step in reading.database(tree, database):
        side = step or side
    head = side.resolve(b"HEAD")
    if head == commit:
        return True
    loose = reading.text(tree, join(database, b"objects/" + head[:2] + b"/" + head[2:])) if head else None
    try:
        text = zlib.decompress(loose) if loose is not None else b""
    except zlib.error:
        return False
    return b"\nparent " + commit + b"\n" in text.partition(b"\n\n")[0] + b"\n"


def stage(
    place: str, tree: Tree, database: bytes, work_tree: bytes, paths: Iterable[bytes]
) -> Generator[Progress, None, None]:  # fmt: skip
    """Enter *paths* into the index as *tree* has them, if the index has them as conflicts.

    Args:
        place: The directory for a workshop.
        tree: A scratch tree, which gets the new index and the objects.
        database: The path of the database.
        work_tree: The directory of its files.
        paths: Paths of the workspace. Those of large files are left out.
    """
    start = len(work_tree) + 1 if work_tree else 0
    open_paths = unmerged(tree, database)
    names = [path[start:] for path in paths if path[start:] in open_paths and not _is_too_large(reading.at(tree, path))]
    index = reading.text(tree, join(database, b"index"), reading.REFS_BYTES)
    if not names or index is None:
        return
    form = "sha256" if _is_sha256(tree, database) else "sha1"
    lines = []
    for name in names:
        lines.append(b"0 " + b"0" * (64 if form == "sha256" else 40) + b"\t" + name + b"\0")
        inode = reading.at(tree, join(work_tree, name))
        if inode is not None and (inode.is_file or stat.S_ISLNK(inode.mode)):
            oid = _put_object(tree, database, _content(inode), form)
            lines.append(_mode(inode) + b" " + oid + b"\t" + name + b"\0")
        yield len(lines), len(names), "staging"
    try:
        with Workshop(place, form) as workshop:

            def work() -> bytes:
                workshop.begin(Bundle({}, {}, set()))
                at = os.path.join(workshop.path, "index")
                with open(at, "wb") as file:
                    file.write(index)
                workshop.git("update-index", "-z", "--index-info", data=b"".join(lines))
                with open(at, "rb") as file:
                    return file.read()

            made = yield from aside(lambda: workshop.run(work))
    except GitFailed:
        return  # the index stays as it is: git says then what is left to do
    path = join(database, b"index")
    Transplant(tree).take(path, tree.walk(path), content=made)


def _is_sha256(tree: Tree, database: bytes) -> bool:
    return git_config.values(reading.settings(tree, database), b"extensions").get(b"objectformat", b"").lower() == b"sha256"


def _is_too_large(inode: Inode | None) -> bool:
    return inode is not None and inode.is_file and inode_stat.attributes(inode).size > _STAGED_BYTES


def _content(inode: Inode) -> bytes:
    return content_of(inode) if inode.is_file else inode.tree.readlink(inode)


def _mode(inode: Inode) -> bytes:
    if not inode.is_file:
        return b"120000"
    return b"100755" if inode.mode & stat.S_IXUSR else b"100644"


def _put_object(tree: Tree, database: bytes, content: bytes, form: str) -> bytes:
    """Put a blob into the database, unless it is there. Return its id."""
    raw = b"blob %d\0" % len(content) + content
    oid = (hashlib.sha256 if form == "sha256" else hashlib.sha1)(raw).hexdigest().encode()
    path = join(database, b"objects/" + oid[:2] + b"/" + oid[2:])
    if not reading.has(tree, path):
        like = tree.walk(join(database, b"index"))
        look = attributes_of(like)._replace(mode=stat.S_IFREG | 0o444)
        transplant = Transplant(tree)
        transplant.make_way(path, tree.walk(join(database, b"objects")))
        transplant.take(path, like, content=zlib.compress(raw), look=look)
    return oid
