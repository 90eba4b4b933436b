"""A request to the daemon together with the reply that it needs. Waiting and awaiting clients share this code.

It does no input or output, and knows no particular operation.
"""

import contextlib
import errno
import functools
import os
from collections.abc import Callable, Coroutine, Iterator, Sequence
from typing import Any, Concatenate, Generic, ParamSpec, Protocol, TypeVar, cast, overload

import msgspec

from agentfs_client import wire
from agentfs_client.errors import AgentFSError, DaemonGoneError, InvalidRequestError, ProtocolError, from_reply, gone

NO_DESCRIPTORS = "no-descriptors"  # error code: this transport carries no descriptors

OnProgress = Callable[[wire.Progress], None]  # called now and then during a long request; over the socket only

_P = ParamSpec("_P")
_R = TypeVar("_R", bound=wire.Reply)
_T = TypeVar("_T")
_T_co = TypeVar("_T_co", covariant=True)


class Question(msgspec.Struct, Generic[_T_co], frozen=True):
    """A request and what to do with its reply.

    ``expected`` is the type of the reply, and ``take`` extracts the result from it. ``descriptors`` are sent with the request. If
    ``brings_descriptors`` is not 0, the reply carries one to that many descriptors, which become further arguments of ``take``.
    """

    request: wire.Request
    expected: type[wire.Reply]
    take: Callable[..., _T_co]
    on_progress: OnProgress | None = None
    descriptors: Sequence[int] = ()
    brings_descriptors: int = 0

    def encode(self, *, carries_descriptors: bool) -> bytes:
        """Encode the request.

        Raises:
            InvalidRequestError: the request is too long for the daemon, or the transport cannot carry it.
        """
        if (self.descriptors or self.brings_descriptors) and not carries_descriptors:
            raise InvalidRequestError(
                errno.EINVAL, NO_DESCRIPTORS, "the control file carries no descriptors", "ask over the daemon's socket"
            )
        try:
            body = wire.encode(self.request)
        except UnicodeEncodeError as exc:
            text = str(exc.object).encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
            hint = "give it in UTF-8; only paths may be of any bytes"
            raise InvalidRequestError(errno.EINVAL, "invalid", f"{text} is not valid UTF-8", hint) from exc
        if len(body) > wire.MAX_REQUEST_BYTES:
            limit = f"at most {wire.MAX_REQUEST_BYTES} bytes"
            raise InvalidRequestError(errno.EMSGSIZE, "too-long", f"a request of {len(body)} bytes is too long", limit)
        return body

    def tell(self, progress: wire.Progress) -> None:
        if self.on_progress is not None:
            self.on_progress(progress)

    def answer(self, reply: wire.Reply, came: Sequence[int] = ()) -> _T_co:
        """Return the result that ``take`` extracts from the reply.

        Args:
            reply: the reply.
            came: descriptors that came with the reply. Those that the caller does not get are closed.

        Raises:
            AgentFSError: the daemon refused the request.
        """
        left = list(came)
        try:
            if not isinstance(reply, self.expected):
                raise unexpected(reply, self.expected)
            if not self.brings_descriptors:
                return self.take(reply)
            if not left:
                raise ProtocolError(errno.EPROTO, "bad-reply", f"the daemon answered {type(reply).__name__} without a descriptor")
            taken = self.take(reply, *left[: self.brings_descriptors])
            del left[: self.brings_descriptors]
            return taken
        finally:
            for descriptor in left:
                os.close(descriptor)


@overload
def ask(
    request: wire.Request, expected: type[_R], *, on_progress: OnProgress | None = None, descriptors: Sequence[int] = ()
) -> Question[_R]: ...
@overload
def ask(
    request: wire.Request,
    expected: type[_R],
    take: Callable[[_R], _T],
    *,
    on_progress: OnProgress | None = None,
    descriptors: Sequence[int] = (),
) -> Question[_T]: ...
def ask(
    request: wire.Request,
    expected: type[_R],
    take: Callable[[_R], Any] = lambda reply: reply,
    *,
    on_progress: OnProgress | None = None,
    descriptors: Sequence[int] = (),
) -> Question[Any]:
    """A Question; without *take* the answer is the whole reply."""
    return Question(request, expected, take, on_progress, descriptors)


def ask_for_descriptor(
    request: wire.Request, expected: type[_R], take: Callable[[_R, int], _T], *, descriptors: Sequence[int] = ()
) -> Question[_T]:
    """Make a Question whose reply carries a descriptor. The caller that gets the result of *take* closes the descriptor."""
    return Question(request, expected, take, descriptors=descriptors, brings_descriptors=1)


def no_result(reply: wire.Done) -> None:
    """Take nothing from a reply."""


def raw_paths(paths: Sequence[str | bytes]) -> list[bytes]:
    """Return paths as requests carry them."""
    return [os.fsencode(path) for path in paths]


class WaitingClient(Protocol):
    """A client whose operations wait for the answer, such as ControlClient."""

    def _answer(self, asked: Question[_T]) -> _T: ...


class AwaitingClient(Protocol):
    """A client whose operations are awaited, such as AsyncControlClient."""

    async def _answer(self, asked: Question[_T]) -> _T: ...


class Operation(Protocol[_P, _T_co]):
    """How type checkers see an operation: it waits in a ControlClient, and is awaited in an AsyncControlClient."""

    @overload
    def __get__(self, instance: WaitingClient, owner: Any) -> Callable[_P, _T_co]: ...
    @overload
    def __get__(self, instance: AwaitingClient, owner: Any) -> Callable[_P, Coroutine[Any, Any, _T_co]]: ...
    @overload
    def __get__(self, instance: None, owner: type[WaitingClient]) -> Callable[Concatenate[Any, _P], _T_co]: ...
    @overload
    def __get__(
        self, instance: None, owner: type[AwaitingClient]
    ) -> Callable[Concatenate[Any, _P], Coroutine[Any, Any, _T_co]]: ...


def operation(describe: Callable[Concatenate[Any, _P], Question[_T_co]]) -> Operation[_P, _T_co]:
    """Turn a method that describes a Question into one that sends it through the client's ``_answer``."""

    @functools.wraps(describe)
    def method(self: Any, *args: _P.args, **kwargs: _P.kwargs) -> Any:
        return self._answer(describe(self, *args, **kwargs))

    return cast(Operation[_P, _T_co], method)


HELLO = ask(wire.Hello(client="agentfs_client"), wire.HelloOk)  # the first request of every conversation


@contextlib.contextmanager
def delivery() -> Iterator[None]:
    """Turn every failure to get a reply into an AgentFSError."""
    try:
        yield
    except (msgspec.DecodeError, UnicodeDecodeError) as exc:
        raise ProtocolError(errno.EPROTO, "bad-reply", f"the daemon's answer cannot be read: {exc}") from exc
    except AgentFSError:
        raise
    except TimeoutError as exc:
        raise gone("the daemon does not answer: timed out", errno.ETIMEDOUT) from exc
    except OSError as exc:
        raise gone(f"the daemon does not answer: {exc.strerror or exc}", exc.errno or errno.EIO) from exc


def ended() -> DaemonGoneError:
    """Return the exception for a request in a conversation that has ended."""
    return DaemonGoneError(errno.EPIPE, "closed", "this conversation has ended", "begin a new one")


def event(reply: wire.Reply) -> wire.Event | None:
    """Return the event in a reply; None if no more events follow. Raises AgentFSError for any other reply."""
    if isinstance(reply, wire.Event):
        return reply
    if isinstance(reply, wire.Done):
        return None
    raise unexpected(reply, wire.Event)


def unexpected(reply: wire.Reply, expected: type[wire.Reply]) -> AgentFSError:
    """Return the exception for a reply of another type: the daemon's refusal, or a protocol error."""
    if isinstance(reply, wire.Error):
        return from_reply(reply)
    return ProtocolError(errno.EPROTO, "bad-reply", f"the daemon answered {type(reply).__name__}, not {expected.__name__}")
