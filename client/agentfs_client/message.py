"""What every message has in common, and its version."""

import msgspec

PROTOCOL_VERSION = 1


class Message(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="op"):
    """Base of all messages; ``op`` says which one it is."""


def tagged(base: type[Message]) -> tuple[type[Message], ...]:
    """Return the messages below *base* that can be sent: each class that was given a tag of its own."""
    found: list[type[Message]] = []
    for one in base.__subclasses__():
        if one.__struct_config__.tag != one.__name__:
            found.append(one)
        found.extend(tagged(one))
    return tuple(found)
