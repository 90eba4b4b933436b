"""``UPath("agentfs://BRANCH/path")``: pathlib over AgentFSFileSystem, by universal_pathlib.

This module adds the form of the paths.
"""

from agentfs_client.extras import needed_for

with needed_for("agentfs:// as a path needs", "upath"):
    import fsspec
    from upath import UPath

fsspec.get_filesystem_class("agentfs")  # UPath guesses what a path is made of where the class is not known yet


class AgentFSPath(UPath):
    """A path of the protocol ``agentfs``."""

    __slots__ = ()

    def __str__(self) -> str:
        return super().__str__().replace("agentfs:///", "agentfs://", 1)
