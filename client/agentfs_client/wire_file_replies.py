"""The replies to requests about files."""

from typing import Literal

from agentfs_client.facts import FileInfo, NameInTree
from agentfs_client.message import Reply


class FileReply(Reply, frozen=True, kw_only=True, tag="file"):
    file: FileInfo


class FilesReply(Reply, frozen=True, kw_only=True, tag="files"):
    files: list[FileInfo]


class FileOpened(Reply, frozen=True, kw_only=True, tag="file.opened"):
    """An opened file.

    ``handle`` identifies it in further requests of this conversation; 0 means that nothing more can be read. ``data`` is the
    beginning of its content, if requested (base64 in JSON).
    """

    handle: int
    file: FileInfo | None = None  # None: the file does not exist yet
    data: bytes = b""


class FilesCounted(Reply, frozen=True, kw_only=True, tag="file.counted"):
    """The number of files that are not directories, and the total size of the regular files in bytes."""

    files: int
    size_bytes: int


class FileData(Reply, frozen=True, kw_only=True, tag="file.data"):
    data: bytes


class ContentsReply(Reply, frozen=True, kw_only=True, tag="file.contents.ok"):
    """The contents of the first of the files that were asked for, in that order (base64 in JSON): as many as fit. None: read that
    one by itself.
    """

    contents: list[bytes | None]


class ListingsReply(Reply, frozen=True, kw_only=True, tag="file.listings.ok"):
    """The names in the first of the directories that were asked for, each sorted: as many as fit. None: that one cannot be
    listed, or has gone.
    """

    listings: list[list[NameInTree] | None]


class FdReply(Reply, frozen=True, kw_only=True, tag="fd"):
    """The reply that carries a real descriptor.

    ``source`` is own (the branch's own content, so the descriptor sees later changes), lower (the unmodified file below,
    read-only), or snapshot (read-only). A lower or snapshot descriptor does not show later changes.
    """

    source: Literal["own", "lower", "snapshot"]
    file: FileInfo
