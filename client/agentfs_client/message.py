"""The base of all messages, and the version of the protocol."""

import msgspec

PROTOCOL_VERSION = 1


class Message(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="op"):
    """Base of all messages. ``op`` names the message."""


def tagged(base: type[Message]) -> tuple[type[Message], ...]:
    """Return the subclasses of *base* that have a tag, which are the messages that can be sent."""
    kinds: list[type[Message]] = []
    for one in base.__subclasses__():
        if one.__struct_config__.tag != one.__name__:
            kinds.append(one)
        kinds.extend(tagged(one))
    return tuple(kinds)
