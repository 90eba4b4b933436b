"""Every message between clients and the daemon, in one place and versioned. The daemon imports this, never the other way.

A message is msgpack; one whose first byte is ``{`` is JSON and is answered in JSON. On the control file one write is one
request, and the reply is read from the same descriptor. On the socket each message follows its length, four bytes, little
endian. Source: the control plane of the AgentFS specification.
"""

import re
import struct
from typing import Union

import msgspec

from agentfs_client.facts import *  # noqa: F403 - wire has it all
from agentfs_client.message import PROTOCOL_VERSION as PROTOCOL_VERSION
from agentfs_client.message import Message
from agentfs_client.observed import *  # noqa: F403
from agentfs_client.replies import *  # noqa: F403
from agentfs_client.replies import REPLY_TYPES, Reply
from agentfs_client.requests import *  # noqa: F403
from agentfs_client.requests import REQUEST_TYPES, Request

MAX_REQUEST_BYTES = 1 << 20
MAX_REPLY_BYTES = 1 << 30
MAX_DATA_BYTES = 512 << 10  # of a file's content in one message; base64 of it fits a request, too

NAME_PATTERN = r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}"
_NAME = re.compile(NAME_PATTERN)
_LENGTH = struct.Struct("<I")


def valid_name(name: str) -> bool:
    """Whether a branch or snapshot may be called so."""
    return _NAME.fullmatch(name) is not None


_ANY_REQUEST, _ANY_REPLY = Union[REQUEST_TYPES], Union[REPLY_TYPES]  # noqa: UP007 - of as many as there are
_request_msgpack = msgspec.msgpack.Decoder(_ANY_REQUEST)
_request_json = msgspec.json.Decoder(_ANY_REQUEST)
_reply_msgpack = msgspec.msgpack.Decoder(_ANY_REPLY)
_reply_json = msgspec.json.Decoder(_ANY_REPLY)


class _Claim(msgspec.Struct, frozen=True):
    """All that is asked of a message which may be of another version."""

    version: int = PROTOCOL_VERSION


_claim_msgpack = msgspec.msgpack.Decoder(_Claim)
_claim_json = msgspec.json.Decoder(_Claim)


def is_json(body: bytes) -> bool:
    return body[:1] == b"{"


def decode_request(body: bytes) -> Request:
    """msgspec.DecodeError (ValidationError for wrong fields) for anything else than a request."""
    request: Request = _request_json.decode(body) if is_json(body) else _request_msgpack.decode(body)
    return request


def claimed_version(body: bytes) -> int:
    """The version of a message that cannot be read otherwise; ours when it names none."""
    try:
        claim: _Claim = _claim_json.decode(body) if is_json(body) else _claim_msgpack.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return PROTOCOL_VERSION
    return claim.version


def decode_reply(body: bytes) -> Reply:
    reply: Reply = _reply_json.decode(body) if is_json(body) else _reply_msgpack.decode(body)
    return reply


def encode(message: Message, *, json: bool = False) -> bytes:
    """JSON ends with a newline, so that a shell's ``read`` returns."""
    return msgspec.json.encode(message) + b"\n" if json else msgspec.msgpack.encode(message)


def frame(body: bytes) -> bytes:
    return _LENGTH.pack(len(body)) + body


def frame_length(header: bytes) -> int:
    """The length that a four-byte header announces."""
    length: int = _LENGTH.unpack(header)[0]
    return length


HEADER_BYTES = _LENGTH.size
