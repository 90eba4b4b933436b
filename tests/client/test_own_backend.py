"""Backends of other people against the suites that are shipped: the one that the README shows, and one with text alone."""

from typing import Any

from agentfs_files.backends.in_memory import InMemoryFilesystem
from agentfs_files.testing.suites import FilesystemProtocolTests
from tests.client.test_readme import EXAMPLES, run_example

(_shown,) = (code for code in EXAMPLES.values() if "FilesystemValidationSuite" in code)
TestTheOneInTheReadme = run_example(_shown)["TestRows"]


class TextAlone:
    """The methods of the protocol's version 1: no bytes, no streams, no archives."""

    _METHODS = (
        "read", "write", "exists", "stat", "list", "glob", "delete", "mkdir", "root", "read_only", "mount_point", "snapshot",
        "restore", "diff", "current_snapshot_id",
    )  # fmt: skip

    def __init__(self) -> None:
        self._files = InMemoryFilesystem()

    def __getattr__(self, name: str) -> Any:
        if name not in self._METHODS:
            raise AttributeError(name)
        return getattr(self._files, name)

    def grep(self, pattern: str, *, path: str = ".", glob: str | None = None, max_matches: int | None = None) -> Any:
        return self._files.grep(pattern, path=path, glob=glob, max_matches=max_matches)


class TestTextAlone(FilesystemProtocolTests):
    def create_filesystem(self) -> TextAlone:
        return TextAlone()
