"""Read a git database in one tree: refs, HEAD, logs, and the object files that the lower does not have.

Nothing here starts git, follows a symlink or leaves the tree. What a workspace contains is treated as data only.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from agentfsd.core import inode_stat
from agentfsd.core.tree import Inode, Tree, join
from agentfsd.core.whole_contents import content_of
from agentfsd.metadata.rows import is_whiteout
from agentfsd.repositories import git_config
from agentfsd.repositories.git_config import GitSetting
from agentfsd.repositories.git_database_paths import UNDER_WAY, kind_of

INLINE_BYTES = 1 << 20  # larger files are handed to git by descriptor
REFS_BYTES = 1 << 28  # more than any packed-refs: whoever writes such a file means no good
_ATTEMPTS = 3  # to read refs while somebody packs them
_LINKS = 5  # as many symbolic refs as git follows
_ID = re.compile(rb"[0-9a-f]{40}(?:[0-9a-f]{24})?")
_NO_NAME = re.compile(rb"[\x00-\x20\x7f~^:?*\[\\]|\.\.|@\{|//|/\.|\.lock(?:/|$)|[/.]$")  # source: git-check-ref-format(1)


@dataclass(slots=True)
class GitDatabase:
    """One side of a repository. ``refs`` maps full names to object ids in hexadecimal, or to ``ref: NAME``."""

    path: bytes
    head: bytes = b""
    refs: dict[bytes, bytes] = field(default_factory=dict)
    packed: bytes = b""
    loose: set[bytes] = field(default_factory=set)  # names that have a file of their own
    index: bytes | None = None
    locks: list[bytes] = field(default_factory=list)
    under_way: list[str] = field(default_factory=list)
    shallow: bytes = b""
    format: str = "sha1"
    reftable: bool = False
    bare: bool = False
    sparse: bool = False  # the main checkout
    worktrees: dict[bytes, bytes] = field(default_factory=dict)  # linked ones: HEAD by directory in the database
    linked: set[bytes] = field(default_factory=set)  # full names of refs that these HEADs lead through, and that may not move
    broken: list[bytes] = field(default_factory=list)  # paths of refs, and HEAD, whose content is none that git writes

    def resolve(self, name: bytes) -> bytes:
        """Return the object id that a ref or HEAD resolves to; b"" if there is none (a branch without commits)."""
        return self.resolve_value(self.head if name == b"HEAD" else self.refs.get(name, b""))

    def resolve_value(self, value: bytes) -> bytes:
        """Return the object id that a ref's value resolves to; b"" if there is none."""
        for _ in range(_LINKS):
            if not value.startswith(b"ref: "):
                return value
            value = self.refs.get(value[5:].strip(), b"")
        return b""

    @property
    def branch(self) -> bytes:
        """The full name of the branch that is checked out, where symbolic refs end; b"" for a detached HEAD."""
        return (self.checked_out or [b""])[-1]

    @property
    def checked_out(self) -> list[bytes]:
        """The full names of the refs that HEAD leads through: symbolic ones, and the branch last."""
        return self.way(self.head)

    def ways(self, heads: Iterable[bytes]) -> set[bytes]:
        """Return the full names of all refs that some HEADs lead through."""
        return {name for head in heads for name in self.way(head)}

    def way(self, head: bytes) -> list[bytes]:
        """Return the full names of the refs that a HEAD of this value leads through; none if it is detached."""
        if not head.startswith(b"ref: "):
            return []
        names = [head[5:].strip()]
        while len(names) < _LINKS and (value := self.refs.get(names[-1], b"")).startswith(b"ref: "):
            names.append(value[5:].strip())
        return names


def has(tree: Tree, path: bytes) -> bool:
    """Return whether a path exists."""
    return at(tree, path) is not None


def at(tree: Tree, path: bytes) -> Inode | None:
    """Return the inode at a path; None if there is none."""
    try:
        return tree.walk(path)
    except (FileNotFoundError, NotADirectoryError):
        return None


def text(tree: Tree, path: bytes, limit: int = INLINE_BYTES) -> bytes | None:
    """Return a regular file's content; None if there is no such file, or if it is larger than *limit* bytes."""
    inode = at(tree, path)
    if inode is None or not inode.is_file or inode_stat.data_stat(inode).st_size > limit:
        return None
    return content_of(inode)


def database(tree: Tree, path: bytes) -> Iterator[GitDatabase | None]:
    """Read a database in steps. Yields None at each step, and the database last, if *tree* has one at *path*."""
    top = at(tree, path)
    if top is None or not top.is_dir:
        return
    head = (text(tree, join(path, b"HEAD")) or b"").strip()
    made = GitDatabase(path, ref_value(head))
    if head and not made.head:
        made.broken.append(b"HEAD")
    for name in tree.names(top):
        if kind_of(name) == "lock":
            made.locks.append(name)
        if name in UNDER_WAY:
            made.under_way.append(UNDER_WAY[name])
    made.index = text(tree, join(path, b"index"), REFS_BYTES)
    made.shallow = text(tree, join(path, b"shallow")) or b""
    found = settings(tree, path)
    extensions = git_config.values(found, b"extensions")
    made.format = "sha256" if extensions.get(b"objectformat", b"").lower() == b"sha256" else "sha1"
    made.reftable = extensions.get(b"refstorage", b"").lower() == b"reftable"
    made.sparse = is_sparse(found)
    made.bare = _is_bare(git_config.values(found, b"core"), path, made)
    _read_worktrees(tree, made)
    yield None
    yield from _read_refs(tree, made)
    made.linked = made.ways(made.worktrees.values())
    yield made


def _read_refs(tree: Tree, made: GitDatabase) -> Iterator[None]:
    """Read the refs: first their files, then the list of packed refs, which `git pack-refs` writes before it removes files.

    Whoever reads them the other way round may miss a ref, or get a value of long ago, if git packs refs meanwhile.
    """
    path, locks, broken = join(made.path, b"packed-refs"), made.locks, made.broken
    for _ in range(_ATTEMPTS):
        before = _state(tree, path)
        made.refs, made.loose, made.locks, made.broken = {}, set(), [*locks], [*broken]
        for name, value in _loose_refs(tree, made.path):
            if name.endswith(b".lock"):
                made.locks.append(name)
            elif value and is_ref_name(name):
                made.refs[name] = ref_value(value)
                made.loose.add(name)
                if not made.refs[name]:
                    made.broken.append(name)
            yield
        made.packed = text(tree, path, REFS_BYTES) or b""
        made.refs = packed_refs(made.packed) | made.refs
        if _state(tree, path) == before:
            return


def _state(tree: Tree, path: bytes) -> tuple[int, int, int]:
    """Return what changes when somebody replaces a file."""
    inode = at(tree, path)
    if inode is None or not inode.is_file:
        return 0, 0, 0
    shown = inode_stat.data_stat(inode)
    return shown.st_ino, shown.st_size, shown.st_mtime_ns


def settings(tree: Tree, database: bytes, checkout: bytes = b"") -> list[GitSetting]:
    """Return the settings of a checkout, in the order in which git reads them: a later value of a key replaces an earlier one.

    Args:
        tree: The tree.
        database: The path of the database.
        checkout: The directory in the database that belongs to a linked worktree; b"" for the main one.
    """
    found = list(git_config.settings(text(tree, join(database, b"config")) or b""))
    if git_config.is_true(git_config.values(found, b"extensions").get(b"worktreeconfig", b"false")):
        own = join(database, checkout) if checkout else database
        found += git_config.settings(text(tree, join(own, b"config.worktree")) or b"")
    return found


def is_sparse(found: list[GitSetting]) -> bool:
    """Return whether settings make a checkout a sparse one (`git sparse-checkout`), which lacks files that its index has."""
    return git_config.is_true(git_config.values(found, b"core").get(b"sparsecheckout", b"false"))


def _is_bare(core: dict[bytes, bytes], path: bytes, made: GitDatabase) -> bool:
    """Return whether a database has no work tree. Its name says nothing: a submodule's may have any, and so may others."""
    if b"bare" in core:
        return git_config.is_true(core[b"bare"])
    return path.rpartition(b"/")[2] != b".git" and b"worktree" not in core and made.index is None


def _read_worktrees(tree: Tree, made: GitDatabase) -> None:
    for name in _names(tree, join(made.path, b"worktrees")):
        linked = b"worktrees/" + name
        made.worktrees[linked] = ref_value((text(tree, join(made.path, linked + b"/HEAD")) or b"").strip())
        made.locks += [linked + b"/" + lock for lock in _names(tree, join(made.path, linked)) if kind_of(lock) == "lock"]


def _names(tree: Tree, directory: bytes) -> Iterable[bytes]:
    node = at(tree, directory)
    return tree.names(node) if node is not None and node.is_dir else ()


def _loose_refs(tree: Tree, path: bytes) -> Iterator[tuple[bytes, bytes]]:
    todo = [b"refs"]
    while todo:
        directory = todo.pop()
        node = at(tree, join(path, directory))
        for name in tree.names(node) if node is not None and node.is_dir else ():
            below = directory + b"/" + name
            inode = at(tree, join(path, below))
            if inode is not None and inode.is_dir:
                todo.append(below)
            elif inode is not None and inode.is_file and inode_stat.data_stat(inode).st_size < 4096:
                yield below, content_of(inode).strip()


def is_ref_name(name: bytes) -> bool:
    """Return whether git accepts a name as a ref. Any other name could point to another file of the database, or out of it."""
    return name.startswith(b"refs/") and not _NO_NAME.search(name)


def ref_value(data: bytes) -> bytes:
    """Parse a ref's file: return the object id or ``ref: NAME``; b"" for anything else, which git could take for an option."""
    if data.startswith(b"ref:"):
        name = data[4:].strip()
        return b"ref: " + name if is_ref_name(name) else b""
    word = (data.split(maxsplit=1) or [b""])[0].lower()  # as git: what follows the first word says nothing
    return word if _ID.fullmatch(word) else b""


def packed_refs(data: bytes) -> dict[bytes, bytes]:
    """Parse a packed-refs file: return object ids by name. Lines that git would not write are skipped.

    Source: git-pack-refs(1).
    """
    refs = {}
    for line in data.splitlines():
        oid, space, name = line.partition(b" ")
        if space and not line.startswith((b"#", b"^")) and is_ref_name(name) and _ID.fullmatch(oid):
            refs[name] = oid
    return refs


def without_packed(data: bytes, gone: set[bytes]) -> bytes:
    """Return a packed-refs file without the refs named *gone* and their peeled values."""
    kept, skipping = [], False
    for line in data.splitlines(keepends=True):
        if not line.startswith(b"^"):
            skipping = line.rstrip(b"\n").partition(b" ")[2] in gone and not line.startswith(b"#")
        if not skipping:
            kept.append(line)
    return b"".join(kept)


def own_files(tree: Tree, directory: bytes) -> Iterator[tuple[bytes, Inode] | None]:
    """Yield each regular file below a directory that the branch stores itself, with its path there; None at other steps.

    A file that the branch never changed has no row. It is in the lower and needs no look.
    """
    todo = [b""]
    while todo:
        inner = todo.pop()
        path = join(directory, inner) if inner else directory
        node = at(tree, path)
        if node is None or not node.is_dir or (not node.id and node.lower_path == path):
            continue
        moved = node.lower_path not in (None, path)
        names = tree.names(node) if moved else [name for name, child in tree.entries(node).items() if not is_whiteout(child)]
        for name in names:
            below = join(inner, name)
            child = tree.find(node, name)
            if child is not None and child.is_dir:
                todo.append(below)
            elif child is not None and child.is_file and (child.content or child.lower_path != join(directory, below)):
                yield below, child
        yield None
