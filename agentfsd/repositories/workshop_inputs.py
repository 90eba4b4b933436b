"""What a workshop is given to work on: object files of branches, and the files by which git reads attributes and ignore rules."""

import os
from typing import NamedTuple


class Bundle(NamedTuple):
    """Object files for a workshop, by path below the objects directory.

    Attributes:
        contents: The content of small files that the workshop lacks.
        descriptors: Descriptors of large files that it lacks. The bundle owns them.
        seen: The paths of all object files that the trees have.
    """

    contents: dict[bytes, bytes]
    descriptors: dict[bytes, int]
    seen: set[bytes]

    def close(self) -> None:
        """Close the descriptors."""
        for fd in self.descriptors.values():
            os.close(fd)
        self.descriptors.clear()


class AttributeFiles(NamedTuple):
    """What git reads the attributes of files from.

    Attributes:
        files: The content of ``.gitattributes`` files, by path in the work tree.
        information: The content of ``info/attributes``.
        settings: The content of the repository's ``config``, if it defines merge drivers.
    """

    files: dict[bytes, bytes]
    information: bytes = b""
    settings: bytes = b""


class IgnoreFiles(NamedTuple):
    """What git reads from to tell which files it ignores.

    Attributes:
        rules: The content of ``.gitignore`` files, by path in the work tree.
        information: The content of ``info/exclude``.
        tracked: The index: a file that it has is never ignored. Empty if there is none.
    """

    rules: dict[bytes, bytes]
    information: bytes
    tracked: bytes
