"""A request to the daemon together with what its reply must be, and what both ways of putting it share: waiting and awaiting.

It does no input or output, and knows no single operation.
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

NO_DESCRIPTORS = "no-descriptors"  # the code of a refusal: this way to the daemon carries none

OnProgress = Callable[[wire.Progress], None]  # called now and then while a long request is worked on; over the socket only

_P = ParamSpec("_P")
_R = TypeVar("_R", bound=wire.Reply)
_T = TypeVar("_T")
_T_co = TypeVar("_T_co", covariant=True)


class Question(msgspec.Struct, Generic[_T_co], frozen=True):
    """``take`` gets what the caller wants out of a reply of the ``expected`` kind. ``descriptors`` go along with the request;
    with ``brings_descriptors`` one at least and that many at most come with the reply, and are further arguments of ``take``."""

    request: wire.Request
    expected: type[wire.Reply]
    take: Callable[..., _T_co]
    on_progress: OnProgress | None = None
    descriptors: Sequence[int] = ()
    brings_descriptors: int = 0

    def encode(self, *, carries_descriptors: bool) -> bytes:
        """InvalidRequestError for a request that the daemon would not read to its end, or that a transport cannot carry."""
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
        """What the caller wanted; AgentFSError for a refusal. *came*: descriptors that came along; what the caller does not get
        of these is closed."""
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
    """A Question whose reply brings a descriptor, which is whoever's who gets what *take* returns."""
    return Question(request, expected, take, descriptors=descriptors, brings_descriptors=1)


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
    """Makes a method that puts the question which *describe* returns, by its client's ``_answer``."""

    @functools.wraps(describe)
    def method(self: Any, *args: _P.args, **kwargs: _P.kwargs) -> Any:
        return self._answer(describe(self, *args, **kwargs))

    return cast(Operation[_P, _T_co], method)


HELLO = ask(wire.Hello(client="agentfs_client"), wire.HelloOk)  # what every conversation begins with


@contextlib.contextmanager
def delivery() -> Iterator[None]:
    """AgentFSError for whatever keeps a reply from us."""
    try:
        yield
    except msgspec.DecodeError as exc:
        raise ProtocolError(errno.EPROTO, "bad-reply", f"the daemon's answer cannot be read: {exc}") from exc
    except AgentFSError:
        raise
    except OSError as exc:
        raise gone(f"the daemon does not answer: {exc.strerror or exc}", exc.errno or errno.EIO) from exc


def ended() -> DaemonGoneError:
    """The refusal to ask in a conversation that is over."""
    return DaemonGoneError(errno.EPIPE, "closed", "this conversation has ended", "begin a new one")


def event(reply: wire.Reply) -> wire.Event | None:
    """The event that a reply is; None when no more will come. AgentFSError for anything else."""
    if isinstance(reply, wire.Event):
        return reply
    if isinstance(reply, wire.Done):
        return None
    raise unexpected(reply, wire.Event)


def unexpected(reply: wire.Reply, expected: type[wire.Reply]) -> AgentFSError:
    """The exception for a reply of another kind: a refusal, or nonsense."""
    if isinstance(reply, wire.Error):
        return from_reply(reply)
    return ProtocolError(errno.EPROTO, "bad-reply", f"the daemon answered {type(reply).__name__}, not {expected.__name__}")
