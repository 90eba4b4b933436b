"""The requests about single files: by path, by the handle of an open file, and by a real descriptor."""

from typing import Literal

from agentfs_client.message import Request


class FileRequest(Request, frozen=True, kw_only=True):
    """A request about one path, performed with the caller's permissions on the mount.

    ``branch`` is any ref; a snapshot can only be read. ``path`` is relative to the root, which is "". ``raw_path`` replaces it
    for names that are not UTF-8 (base64 in JSON). Symlinks are followed as long as they stay beneath the root.
    """

    branch: str | None = None
    path: str = ""
    raw_path: bytes = b""


class HandleRequest(Request, frozen=True, kw_only=True):
    """A request about a file that this conversation has open. ``handle`` is the one in FileOpened."""

    handle: int


class StatFile(FileRequest, frozen=True, kw_only=True, tag="file.stat"):
    """Ask for a file's attributes. ``follow``: of the target of a symlink, instead of the link itself."""

    follow: bool = True


class FileList(FileRequest, frozen=True, kw_only=True, tag="file.list"):
    """List a directory, sorted by name. With ``names_only``, entries have only their kind, which is symlink for a symlink; this
    is several times faster in large directories.
    """

    names_only: bool = False


class FileOpen(FileRequest, frozen=True, kw_only=True, tag="file.open"):
    """Open a file for reading.

    The reply holds up to ``read_bytes`` of its beginning. If the file is no longer than that, it is not kept open, and the handle
    is 0.
    """

    read_bytes: int = 0


class FileRead(HandleRequest, frozen=True, kw_only=True, tag="file.read"):
    """Read at most MAX_DATA_BYTES. The reply is shorter than ``size`` only at the end of the file."""

    offset: int
    size: int


class FileCreate(FileRequest, frozen=True, kw_only=True, tag="file.create"):
    """Begin to write a file. Nobody sees it before file.commit; closing the handle or ending the conversation discards it.

    ``mode`` create: EEXIST if the path exists. append: at file.commit the data are appended to the file as it is then.
    ``permissions`` are those of a new file, reduced by the caller's umask.
    """

    mode: Literal["create", "overwrite", "append"] = "overwrite"
    permissions: int = 0o666


class FileWrite(HandleRequest, frozen=True, kw_only=True, tag="file.write"):
    """Add data to a file that file.create began (base64 in JSON); at most MAX_DATA_BYTES."""

    data: bytes


class FileCommit(HandleRequest, frozen=True, kw_only=True, tag="file.commit"):
    """Send the last data and make all of it visible at once. The handle is closed even if this is refused."""

    data: bytes = b""


class FileClose(HandleRequest, frozen=True, kw_only=True, tag="file.close"):
    pass


class FileMkdir(FileRequest, frozen=True, kw_only=True, tag="file.mkdir"):
    permissions: int = 0o777  # reduced by the caller's umask


class FileCount(FileRequest, frozen=True, kw_only=True, tag="file.count"):
    """Count the files beneath a directory of a branch or snapshot, and add up their sizes. The daemon walks the whole tree."""


class FileRename(FileRequest, frozen=True, kw_only=True, tag="file.rename"):
    """Rename ``path`` to ``to`` in the same branch, like rename(2). With ``replace`` False: EEXIST if ``to`` exists."""

    to: str = ""
    raw_to: bytes = b""
    replace: bool = True


class FileDelete(FileRequest, frozen=True, kw_only=True, tag="file.delete"):
    """Delete a file or directory. A directory that is not empty needs ``recursive``; if the client disconnects meanwhile, the
    daemon stops and leaves the rest.
    """

    recursive: bool = False


class FileContents(Request, frozen=True, kw_only=True, tag="file.contents"):
    """Read several small files of a branch or snapshot with one request.

    The reply has no content for a file that has more than ``most_bytes``, that is not regular, that cannot be read, or that a
    process at the mount point has open for writing: read these one by one. Paths are in base64 in JSON. No ``branch`` means the
    caller's.
    """

    branch: str | None = None
    raw_paths: list[bytes]
    most_bytes: int


class FileListings(Request, frozen=True, kw_only=True, tag="file.listings"):
    """List several directories with one request. Symlinks on the way are followed, those in the listings are not.

    With ``detailed``, all attributes are told, else name and type. Where rules by path hold for the caller, no details are told.
    Paths and ``branch`` are those of FileContents.
    """

    branch: str | None = None
    raw_paths: list[bytes]
    detailed: bool = False


class FdOpen(FileRequest, frozen=True, kw_only=True, tag="fd.open"):
    """Open a file like open(2). The reply carries a real descriptor of its content; reads and writes with it go to the backing
    file system and bypass the daemon. On the socket only.

    ``flags`` are those of open(2), such as os.O_RDWR | os.O_CREAT. ``permissions`` are those of a new file, reduced by the
    caller's umask. ``require_reflink``: refuse if content would have to be copied, however short. ``no_copy``: copy nothing into
    the branch; a reader gets the present content. If only the descriptor is refused, the code is "not-forwarded".
    """

    flags: int = 0
    permissions: int = 0o666
    require_reflink: bool = False
    no_copy: bool = False


class FdDup(Request, frozen=True, kw_only=True, tag="fd.dup"):
    """Ask for a real descriptor of the file behind another one, which the request carries. On the socket only.

    The other descriptor belongs to the mount, or came from fd.open. The new descriptor has its own offset and the same access
    mode.
    """

    require_reflink: bool = False
    no_copy: bool = False


class FdSync(Request, frozen=True, kw_only=True, tag="fd.sync"):
    """Sync a real descriptor, which the request carries, so that the file's name and attributes survive a power failure, too.
    (fsync of the descriptor itself only covers the content.)
    """

    data_only: bool = False
