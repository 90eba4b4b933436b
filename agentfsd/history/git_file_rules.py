"""How files in git's databases are merged where they are merged as files: which side wins, and where markers would do harm.

It never reads a content. What belongs to a history is joined by repositories/.
"""

from agentfsd.core.tree import Inode
from agentfsd.history.merge_records import Favor
from agentfsd.repositories.git_database_paths import Finder
from agentfsd.repositories.reading import has

_GIT_PASSING = {b"index", b"COMMIT_EDITMSG", b"ORIG_HEAD", b"FETCH_HEAD", b"AUTO_MERGE", b"gc.log"}


def git_favor(path: bytes) -> Favor:
    """Return the side that wins a conflict in a file that git writes by itself, such as the index or a log; "" for other files.

    Without this rule, two branches in which somebody ran `git status` could not be merged. Refs conflict like any other text, but
    never get markers (is_in_git).
    """
    _, found, inside = (b"/" + path).rpartition(b"/.git/")
    if not found:
        return ""
    if inside.startswith(b"logs/") or b"/logs/" in inside:
        return "union"
    return "ours" if inside.rpartition(b"/")[2] in _GIT_PASSING else ""


def is_in_git(path: bytes, ours: Inode, theirs: Inode) -> bool:
    """Return whether a path is in a git database, also of a bare repository, or is a file named ``.git``, which points to one."""
    if b"/.git/" in b"/" + path + b"/":
        return True
    finder = Finder(lambda name: has(ours.tree, name) or has(theirs.tree, name))
    return finder.member(path) is not None
