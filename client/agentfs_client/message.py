"""The bases of all messages, of all requests and of all replies, and the version of the protocol."""

import msgspec

PROTOCOL_VERSION = 1


class Message(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="op"):
    """Base of all messages. ``op`` names the message."""


class Request(Message, frozen=True, kw_only=True):
    """Base of all requests. ``version`` may be omitted; the daemon refuses other versions. On the socket the first request is
    hello.
    """

    version: int = PROTOCOL_VERSION


class Reply(Message, frozen=True, kw_only=True):
    """Base of all replies."""


class LongRequest(Request, frozen=True, kw_only=True):
    """A request that may take long. On the socket the daemon abandons it if the client closes its end before the reply.

    With ``progress``, any number of Progress messages may precede the reply; on the socket only.
    """

    progress: bool = False


def tagged(base: type[Message]) -> tuple[type[Message], ...]:
    """Return the subclasses of *base* that have a tag, which are the messages that can be sent."""
    kinds: list[type[Message]] = []
    for kind in base.__subclasses__():
        if kind.__struct_config__.tag != kind.__name__:
            kinds.append(kind)
        kinds.extend(tagged(kind))
    return tuple(kinds)
