"""Names of git's refs, as texts: how people see them, and what may be part of one. It never reads a repository."""


def short_name(name: bytes) -> str:
    """Return the short form of a ref's name, as git shows it."""
    for prefix in (b"refs/heads/", b"refs/tags/", b"refs/"):
        if name.startswith(prefix):
            return name[len(prefix) :].decode("utf-8", "backslashreplace")
    return name.decode("utf-8", "backslashreplace")


def directories_above(name: bytes) -> list[bytes]:
    """Return every directory above a ref, from the top down: a ref of such a name cannot be beside it."""
    parts = name.split(b"/")
    return [b"/".join(parts[:depth]) for depth in range(1, len(parts))]


def part_of_ref(name: str) -> bytes:
    """Make a branch's name usable as part of a ref: characters that git-check-ref-format(1) forbids become dashes."""
    found = "".join(char if char.isalnum() or char in "._-" else "-" for char in name).strip(".-").replace("..", "-")
    return (found.removesuffix(".lock") or "branch").encode()
