"""Names of directories in git's databases that always show the lower's names together with the branch's own.

These are the directories of object files, and those of linked worktrees and of submodules. They do so also if the branch has made
the directory, and a branch that has removed the directory shows it again if the lower has put something into it since. Otherwise
refs and ``.git`` files that the lower gets would lead to what the branch does not show. A name of an object is the hash of its
content, so the two never disagree. Source: gitrepository-layout(5).
"""

OBJECT_DIRECTORIES = frozenset({b"%02x" % number for number in range(256)} | {b"pack"})  # in ``objects``
INNER_DATABASES = frozenset({b"worktrees", b"modules"})  # in the database itself
IN_EVERY_DATABASE = (b"HEAD", b"objects", b"refs")  # a directory with these is a database
