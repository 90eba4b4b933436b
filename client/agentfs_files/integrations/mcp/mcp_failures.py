"""Describe an error in one sentence for a model."""

from agentfs_client.errors import AgentFSError
from agentfs_files.filesystem.filesystem_errors import PathEscapeError, RootError

EXPECTED = (OSError, ValueError, RuntimeError)  # errors that a caller can cause; any other is a bug in the program


def sentence(exc: Exception, path: str = "", root: str = "") -> str:
    """Return the sentence. *path* is the subject of the call, for errors that name no path; *root* that of the workspace."""
    if isinstance(exc, AgentFSError):
        return f"{exc.message}; {exc.hint}" if exc.hint else exc.message
    if not isinstance(exc, OSError):
        return str(exc)
    where, said = exc.filename or path, exc.strerror or str(exc)
    if isinstance(exc, PathEscapeError) and root:
        return f"{where} leads outside {root}; name a path in it, absolute or relative to it"
    if not where or isinstance(exc, PathEscapeError | RootError):
        return f"{where}: {said}" if where else said
    if isinstance(exc, FileNotFoundError) and f"/{path}".find(f"/{where}/") >= 0:
        return f"the directory {where} does not exist; create_directory makes it"
    return _SENTENCES.get(type(exc), "{path}: {said}").format(path=where, said=said)


_SENTENCES: dict[type[Exception], str] = {
    FileNotFoundError: "{path} does not exist; list_directory shows what there is",
    IsADirectoryError: "{path} is a directory, not a file; list_directory shows what is in it",
    NotADirectoryError: "{path} is not a directory, or something above it is a file",
    FileExistsError: "{path} exists already",
}
