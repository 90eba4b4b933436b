"""Asking a running daemon, through the control file of its mount or its Unix socket. Synchronous, typed."""

import errno
import os
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Literal, TypeVar

import msgspec

from agentfs_client import wire
from agentfs_client.errors import AgentFSError, DaemonGoneError, InvalidRequestError, ProtocolError, from_reply
from agentfs_client.transport import CONTROL_FILE, FileTransport, SocketTransport, Transport

_R = TypeVar("_R", bound=wire.Reply)

OnProgress = Callable[[wire.Progress], None]  # called now and then while a long request is worked on; over the socket only


class EventStream:
    """What happens in branches from the moment it was made: an iterator over a conversation that is given over to it.

    It ends when the one branch that it is about has gone; DaemonGoneError when the daemon ends. close(), or leaving it as a
    context manager, ends the conversation.
    """

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def __iter__(self) -> "EventStream":
        return self

    def __next__(self) -> wire.Event:
        try:
            reply = _read(self._transport.further)
        except BaseException:
            self.close()
            raise
        if isinstance(reply, wire.Event):
            return reply
        self.close()
        if isinstance(reply, wire.Done):
            raise StopIteration
        raise _unexpected(reply, wire.Event)

    def close(self) -> None:
        self._transport.close()

    def __enter__(self) -> "EventStream":
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, tb: TracebackType | None) -> None:
        self.close()


def _read(receive: Callable[[], bytes]) -> wire.AnyReply:
    """One reply; AgentFSError for whatever keeps it from us."""
    try:
        return wire.decode_reply(receive())
    except msgspec.DecodeError as exc:
        raise ProtocolError(errno.EPROTO, "bad-reply", f"the daemon's answer cannot be read: {exc}") from exc
    except AgentFSError:
        raise
    except OSError as exc:
        raise DaemonGoneError(exc.errno or errno.EIO, "daemon-gone", f"the daemon does not answer: {exc}") from exc


def _unexpected(reply: wire.AnyReply, expected: type[wire.Reply]) -> AgentFSError:
    if isinstance(reply, wire.Error):
        return from_reply(reply)
    return ProtocolError(errno.EPROTO, "bad-reply", f"the daemon answered {type(reply).__name__}, not {expected.__name__}")


class ControlClient:
    """One conversation with a daemon; a context manager. Every method raises AgentFSError for a refusal."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self._usable = True
        try:
            self.hello = self.ask(wire.Hello(client="agentfs_client"), wire.HelloOk)
        except BaseException:
            transport.close()
            raise

    @classmethod
    def connect(cls, socket_path: str, timeout_s: float | None = None) -> "ControlClient":
        """Over the daemon's socket."""
        return cls(SocketTransport(socket_path, timeout_s))

    @classmethod
    def open_mount(cls, mountpoint: str) -> "ControlClient":
        """Over the control file of a mount."""
        return cls(FileTransport(os.path.join(mountpoint, CONTROL_FILE)))

    def close(self) -> None:
        self._usable = False
        self._transport.close()

    def __enter__(self) -> "ControlClient":
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

    @property
    def is_usable(self) -> bool:
        """False once it was closed, or the daemon is known to have gone."""
        return self._usable and not self._transport.has_ended()

    def ask(
        self, request: wire.Request, expected: type[_R], descriptors: Sequence[int] = (), on_progress: OnProgress | None = None
    ) -> _R:
        """One request, and its reply if that is what was expected; AgentFSError for any other."""
        reply = self._exchange(wire.encode(request), descriptors, on_progress)
        if not isinstance(reply, expected):
            raise _unexpected(reply, expected)
        return reply

    def _exchange(self, body: bytes, descriptors: Sequence[int], on_progress: OnProgress | None) -> wire.AnyReply:
        """A request left without its reply (a timeout, Ctrl-C) ends the conversation: a later one would be given that reply,
        and a long one is given up by the daemon when we have gone."""
        if len(body) > wire.MAX_REQUEST_BYTES:
            limit = f"at most {wire.MAX_REQUEST_BYTES} bytes"
            raise InvalidRequestError(errno.EMSGSIZE, "too-long", f"a request of {len(body)} bytes is too long", limit)
        if not self._usable:
            raise DaemonGoneError(errno.EPIPE, "closed", "this conversation has ended", "begin a new one")
        try:
            reply = _read(lambda: self._transport.exchange(body, descriptors))
            while isinstance(reply, wire.Progress):
                if on_progress is not None:
                    on_progress(reply)
                reply = _read(self._transport.further)
        except BaseException:
            self.close()
            raise
        return reply

    # -- the daemon

    def status(self) -> wire.StatusReply:
        return self.ask(wire.Status(), wire.StatusReply)

    def capabilities(self) -> dict[str, str]:
        return self.ask(wire.Capabilities(), wire.CapabilitiesReply).capabilities

    def fsck(self, on_progress: OnProgress | None = None) -> list[str]:
        """Problems in the stored state; empty when it is sound."""
        request = wire.Fsck(progress=on_progress is not None)
        return self.ask(request, wire.ProblemsReply, on_progress=on_progress).problems

    def shutdown(self, *, force: bool = False) -> None:
        """Asks the daemon to unmount and end; returns when it has agreed, not when it has ended."""
        self.ask(wire.Shutdown(force=force), wire.Done)

    def events(self, branch: str | None = None) -> EventStream:
        """What happens in a branch (None: in every one, for a bound process in its own) from now on.

        Over the socket only. This conversation is given over to it: nothing else can be asked any more. A ``timeout_s`` of
        connect() is how long it may be quiet.
        """
        self.ask(wire.Events(branch=branch), wire.EventsOk)
        self._usable = False
        return EventStream(self._transport)

    # -- branches

    def create_branch(self, name: str, source: str | None = None) -> wire.Branch:
        return self.ask(wire.BranchCreate(name=name, source=source), wire.BranchReply).branch

    def list_branches(self) -> list[wire.Branch]:
        return self.ask(wire.BranchList(), wire.BranchesReply).branches

    def show_branch(self, ref: str | None = None) -> wire.Branch:
        return self.ask(wire.BranchShow(ref=ref), wire.BranchReply).branch

    def rename_branch(self, ref: str, new_name: str) -> wire.Branch:
        return self.ask(wire.BranchRename(ref=ref, new_name=new_name), wire.BranchReply).branch

    def delete_branch(self, ref: str) -> None:
        """Only a branch without changes; see discard."""
        self.ask(wire.BranchDelete(ref=ref), wire.Done)

    def discard(self, ref: str, *, keep: bool = True) -> None:
        """Throws a branch away with its changes; ``main`` becomes the bare lower. With *keep* undo() can bring it back."""
        self.ask(wire.Discard(ref=ref, keep=keep), wire.Done)

    def bind(self, pid: int, branch: str, *, brood: bool = False) -> None:
        """*brood*: also whatever else this process (which itself stays as it is) starts, or becomes the parent of."""
        self.ask(wire.BranchBind(pid=pid, branch=branch, brood=brood), wire.Done)

    def unbind(self, pid: int) -> None:
        self.ask(wire.BranchUnbind(pid=pid), wire.Done)

    def bindings(self) -> list[wire.Binding]:
        return self.ask(wire.BranchBindings(), wire.BindingsReply).bindings

    def attach_session(self, fuse_fd: int, branch: str, io: str = "auto", device: int = 0) -> str:
        """Hands over a FUSE connection (mounted, not yet spoken on) that is to show one branch; how it carries data."""
        request = wire.SessionAttach(branch=branch, io=io, device=device)
        return self.ask(request, wire.SessionReply, [fuse_fd]).io

    # -- snapshots

    def create_snapshot(
        self, branch: str | None = None, name: str | None = None, tag: str = "", *, around_run: bool = False
    ) -> wire.Snapshot:
        """*around_run*: it was taken by itself, and may go by itself."""
        request = wire.SnapshotCreate(branch=branch, name=name, tag=tag, around_run=around_run)
        return self.ask(request, wire.SnapshotReply).snapshot

    def list_snapshots(self, branch: str | None = None) -> list[wire.Snapshot]:
        return self.ask(wire.SnapshotList(branch=branch), wire.SnapshotsReply).snapshots

    def show_snapshot(self, ref: str) -> wire.Snapshot:
        return self.ask(wire.SnapshotShow(ref=ref), wire.SnapshotReply).snapshot

    def delete_snapshot(self, ref: str) -> None:
        self.ask(wire.SnapshotDelete(ref=ref), wire.Done)

    def log(self, ref: str | None = None) -> list[wire.Snapshot]:
        """The snapshots in a ref's history, newest first."""
        return self.ask(wire.Log(ref=ref), wire.SnapshotsReply).snapshots

    def restore(
        self, ref: str, branch: str | None = None, paths: Sequence[str | bytes] = (), *, on_progress: OnProgress | None = None
    ) -> str:
        """Puts a branch back to a snapshot, or only some paths of it; what was done, for people."""
        request = wire.Restore(
            ref=ref, branch=branch, raw_paths=[os.fsencode(path) for path in paths], progress=on_progress is not None
        )
        return self.ask(request, wire.Done, on_progress=on_progress).message

    # -- several branches

    def merge(
        self, sources: Sequence[str], target: str | None = None, *, favor: Literal["", "ours", "theirs", "union"] = "",
        whole_files: bool = False, markers: bool = False, dry_run: bool = False, on_progress: OnProgress | None = None,
    ) -> wire.MergeReply:  # fmt: skip
        """Merges refs in order into a branch; with conflicts in the reply, nothing has changed. See wire.Merge."""
        request = wire.Merge(
            sources=list(sources), target=target, favor=favor, whole_files=whole_files, markers=markers, dry_run=dry_run,
            progress=on_progress is not None,
        )  # fmt: skip
        return self.ask(request, wire.MergeReply, on_progress=on_progress)

    def commit(
        self, branch: str | None = None, paths: Sequence[str | bytes] = (), *, force: bool = False, merge: bool = False,
        dry_run: bool = False, on_progress: OnProgress | None = None,
    ) -> wire.MergeReply:  # fmt: skip
        """Applies a branch to what it was made from; with conflicts in the reply, nothing has changed. See wire.Commit."""
        request = wire.Commit(
            branch=branch, raw_paths=[os.fsencode(path) for path in paths], force=force, merge=merge, dry_run=dry_run,
            progress=on_progress is not None,
        )  # fmt: skip
        return self.ask(request, wire.MergeReply, on_progress=on_progress)

    def end_commit(self, *, abort: bool = False, on_progress: OnProgress | None = None) -> wire.MergeReply:
        """Finishes a commit that was interrupted, or takes it back."""
        request = wire.CommitEnd(abort=abort, progress=on_progress is not None)
        return self.ask(request, wire.MergeReply, on_progress=on_progress)

    def undo(self) -> wire.Deed:
        """Takes back the last restore, merge, commit to a branch, or discard."""
        return self.ask(wire.Undo(), wire.DeedsReply).deeds[0]

    def undoable(self) -> list[wire.Deed]:
        """What undo() would take back, one after the other."""
        return self.ask(wire.UndoList(), wire.DeedsReply).deeds

    def prune(
        self, branch: str | None = None, *, max_count: int | None = None, max_age: str | None = None,
        keep_tagged: bool | None = None, dry_run: bool = False,
    ) -> list[wire.Snapshot]:  # fmt: skip
        """Deletes snapshots that are too many or too old (None: as the policy has it); those that went."""
        request = wire.Prune(branch=branch, max_count=max_count, max_age=max_age, keep_tagged=keep_tagged, dry_run=dry_run)
        return self.ask(request, wire.SnapshotsReply).snapshots

    def collect_garbage(self, *, forget_undo: bool = False, on_progress: OnProgress | None = None) -> wire.FreedReply:
        """Frees what nothing refers to; *forget_undo*: also what is kept for undo() alone."""
        request = wire.CollectGarbage(forget_undo=forget_undo, progress=on_progress is not None)
        return self.ask(request, wire.FreedReply, on_progress=on_progress)

    def policy(self) -> dict[str, str]:
        return self.ask(wire.PolicyGet(), wire.PolicyReply).policy

    def set_policy(self, name: str, value: str) -> dict[str, str]:
        """One setting; all of them as they are then."""
        return self.ask(wire.PolicySet(name=name, value=value), wire.PolicyReply).policy

    def diff(self, b: str | None = None, a: str | None = None, paths: Sequence[str | bytes] = ()) -> list[wire.Change]:
        """What leads from *a* (None: the lower) to *b* (None: the caller's branch), sorted by path.

        *paths*, relative to the root, name files and directories to keep to.
        """
        request = wire.Diff(a=a, b=b, raw_paths=[os.fsencode(path) for path in paths])
        return self.ask(request, wire.ChangesReply).changes

    def changed_files(self, b: str | None = None, a: str | None = None, *, count: bool = False) -> wire.FilesDifferReply:
        """Which files differ between *a* (None: the lower) and *b* (None: the caller's branch). See wire.DiffFiles."""
        return self.ask(wire.DiffFiles(a=a, b=b, count=count), wire.FilesDifferReply)

    def patches(
        self,
        b: str | None = None,
        a: str | None = None,
        paths: Sequence[str | bytes] = (),
        *,
        stat_only: bool = False,
        context_lines: int = 3,
        on_progress: OnProgress | None = None,
    ) -> list[wire.FilePatch]:
        """Like diff, with a patch for each file in git's format; *stat_only*: only how many lines were added and removed."""
        raw_paths = [os.fsencode(path) for path in paths]
        request = wire.DiffPatch(
            a=a, b=b, raw_paths=raw_paths, stat_only=stat_only, context_lines=context_lines, progress=on_progress is not None
        )
        return self.ask(request, wire.PatchesReply, on_progress=on_progress).patches
