"""What every message has in common, and its version."""

import msgspec

PROTOCOL_VERSION = 1


class Message(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="op"):
    """Base of all messages; ``op`` says which one it is."""
