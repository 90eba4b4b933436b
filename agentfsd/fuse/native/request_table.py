"""Which decoder answers which opcode, and what requests are called in counters and in the log.

A new opcode is declared in fuse_protocol.py, gets a decoder in the module of its noun, and a line in that module's DECODERS.
"""

from agentfsd.fuse.native import (
    attribute_requests,
    data_requests,
    ioctl_requests,
    listing_requests,
    lock_requests,
    name_requests,
    open_requests,
)
from agentfsd.fuse.native import fuse_protocol as fuse
from agentfsd.fuse.native.native_connection import Decoder

DECODERS: dict[int, Decoder] = {
    **name_requests.DECODERS, **listing_requests.DECODERS, **attribute_requests.DECODERS, **open_requests.DECODERS,
    **data_requests.DECODERS, **lock_requests.DECODERS, **ioctl_requests.DECODERS,
}  # fmt: skip


_NAMES = {opcode: decoder.__name__.removeprefix("_") for opcode, decoder in DECODERS.items()} | {fuse.ACCESS: "access"}
NAMES = [_NAMES.get(opcode, "") for opcode in range(max(DECODERS) + 1)]  # by opcode; "" where there is no decoder
