"""Every message between clients and the daemon, versioned, under one name. The daemon imports this module, never the reverse.

A message is msgpack. A message whose first byte is ``{`` is JSON, and its answer is JSON. On the control file one write is one
request, and the reply is read from the same descriptor. On the socket each message follows its length in four bytes, little
endian. Source: the control plane of the AgentFS specification.
"""

import re
import struct
from typing import Union

import msgspec

from agentfs_client.facts import *  # noqa: F403 - wire has it all
from agentfs_client.message import PROTOCOL_VERSION as PROTOCOL_VERSION
from agentfs_client.message import LongRequest as LongRequest
from agentfs_client.message import Message, tagged
from agentfs_client.message import Reply as Reply
from agentfs_client.message import Request as Request
from agentfs_client.observed import *  # noqa: F403
from agentfs_client.replies import *  # noqa: F403
from agentfs_client.requests import *  # noqa: F403
from agentfs_client.wire_conflicts import *  # noqa: F403
from agentfs_client.wire_file_replies import *  # noqa: F403
from agentfs_client.wire_file_requests import *  # noqa: F403
from agentfs_client.wire_history_requests import *  # noqa: F403
from agentfs_client.wire_notes import *  # noqa: F403
from agentfs_client.wire_run_requests import *  # noqa: F403
from agentfs_client.wire_step_requests import *  # noqa: F403

REQUEST_TYPES, REPLY_TYPES = tagged(Request), tagged(Reply)  # all that have a tag, in the modules imported above

MAX_REQUEST_BYTES = 1 << 20
MAX_REPLY_BYTES = 1 << 30
MAX_DATA_BYTES = 512 << 10  # most file content in one message; its base64 form still fits into a request

NAME_PATTERN = r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}"
_NAME = re.compile(NAME_PATTERN)
_LENGTH = struct.Struct("<I")


def valid_name(name: str) -> bool:
    """Tell whether *name* is allowed for a branch or snapshot."""
    return _NAME.fullmatch(name) is not None


_ANY_REQUEST, _ANY_REPLY = Union[REQUEST_TYPES], Union[REPLY_TYPES]  # noqa: UP007 - of as many as there are
_request_msgpack = msgspec.msgpack.Decoder(_ANY_REQUEST)
_request_json = msgspec.json.Decoder(_ANY_REQUEST)
_reply_msgpack = msgspec.msgpack.Decoder(_ANY_REPLY)
_reply_json = msgspec.json.Decoder(_ANY_REPLY)


class _Claim(msgspec.Struct, frozen=True):
    """The only field that a message of another version must have."""

    version: int = PROTOCOL_VERSION


_claim_msgpack = msgspec.msgpack.Decoder(_Claim)
_claim_json = msgspec.json.Decoder(_Claim)


def is_json(body: bytes) -> bool:
    return body[:1] == b"{"


def decode_request(body: bytes) -> Request:
    """Decode a request.

    Raises:
        msgspec.DecodeError: the body is not a request; ValidationError if its fields are wrong.
    """
    request: Request = _request_json.decode(body) if is_json(body) else _request_msgpack.decode(body)
    return request


def claimed_version(body: bytes) -> int:
    """Return the version of a message that cannot be decoded; the present version if it names none."""
    try:
        claim: _Claim = _claim_json.decode(body) if is_json(body) else _claim_msgpack.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return PROTOCOL_VERSION
    return claim.version


def decode_reply(body: bytes) -> Reply:
    reply: Reply = _reply_json.decode(body) if is_json(body) else _reply_msgpack.decode(body)
    return reply


def encode(message: Message, *, json: bool = False) -> bytes:
    """Encode a message. JSON ends with a newline, so that ``read`` in a shell returns."""
    return msgspec.json.encode(message) + b"\n" if json else msgspec.msgpack.encode(message)


def frame(body: bytes) -> bytes:
    return _LENGTH.pack(len(body)) + body


def frame_length(header: bytes) -> int:
    """Return the length in a four-byte header."""
    length: int = _LENGTH.unpack(header)[0]
    return length


HEADER_BYTES = _LENGTH.size
