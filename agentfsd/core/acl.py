"""POSIX access control lists as the kernel stores them in xattrs: inheritance, and keeping mode bits and list in step.

Source: the acl(5) man page; the binary form is that of linux/posix_acl_xattr.h.
"""

import struct

ACCESS = b"system.posix_acl_access"
DEFAULT = b"system.posix_acl_default"

_HEADER = struct.Struct("<I")
_ENTRY = struct.Struct("<HHI")
_VERSION = 2
_USER_OBJ, _USER, _GROUP_OBJ, _GROUP, _MASK, _OTHER = 0x01, 0x02, 0x04, 0x08, 0x10, 0x20

Entries = list[tuple[int, int, int]]


def decode(value: bytes) -> Entries:
    """(tag, permissions, id) triples; ValueError when it is no list."""
    if len(value) < _HEADER.size or _HEADER.unpack_from(value)[0] != _VERSION:
        raise ValueError("not an access control list")
    return list(_ENTRY.iter_unpack(value[_HEADER.size :]))


def encode(entries: Entries) -> bytes:
    return _HEADER.pack(_VERSION) + b"".join(_ENTRY.pack(*entry) for entry in entries)


def _bits(entries: Entries) -> dict[int, int]:
    return {tag: perm for tag, perm, _ in entries if tag in (_USER_OBJ, _GROUP_OBJ, _MASK, _OTHER)}


def mode_of(entries: Entries, mode: int) -> int:
    """The permission bits that a list stands for; the group bits show the mask where there is one."""
    bits = _bits(entries)
    group = bits.get(_MASK, bits.get(_GROUP_OBJ, 0))
    return (mode & ~0o777) | bits.get(_USER_OBJ, 0) << 6 | group << 3 | bits.get(_OTHER, 0)


def with_mode(entries: Entries, mode: int) -> Entries:
    """The list after chmod."""
    group_tag = _MASK if any(tag == _MASK for tag, _, _ in entries) else _GROUP_OBJ
    new = {_USER_OBJ: mode >> 6 & 7, group_tag: mode >> 3 & 7, _OTHER: mode & 7}
    return [(tag, new.get(tag, perm), who) for tag, perm, who in entries]


def without_list(entries: Entries, mode: int, *, fold: bool) -> int:
    """The mode of a file that loses its list. Nobody gets more: what the mask let through of the owning group's rights counts,
    as after ``setfacl -b``. With *fold* the group bits are what anybody of the group class had, named users and groups, too.
    """
    bits = _bits(entries)
    group = bits.get(_GROUP_OBJ, 0)
    if fold:
        for tag, perm, _ in entries:
            group |= perm if tag in (_USER, _GROUP) else 0
    return (mode & ~0o777) | bits.get(_USER_OBJ, 0) << 6 | (group & bits.get(_MASK, 7)) << 3 | bits.get(_OTHER, 0)


def granted(entries: Entries, wanted: int, uid: int, groups: frozenset[int], gid: int) -> int:
    """What a list gives to somebody who is not the file's owner; *gid*: the file's group.

    Of several group entries that fit, one that gives all of *wanted* counts.
    """
    bits = _bits(entries)
    mask = bits.get(_MASK, 7)
    for tag, perm, who in entries:
        if tag == _USER and who == uid:
            return perm & mask
    fitting = [perm for tag, perm, who in entries if (tag == _GROUP and who in groups) or (tag == _GROUP_OBJ and gid in groups)]
    if not fitting:
        return bits.get(_OTHER, 0)
    return next((perm for perm in fitting if not wanted & ~perm), fitting[0]) & mask


def is_minimal(entries: Entries) -> bool:
    """Whether the mode bits say it all."""
    return all(tag in (_USER_OBJ, _GROUP_OBJ, _OTHER) for tag, _, _ in entries)


def inherit(default: bytes | None, mode: int) -> tuple[int, dict[bytes, bytes]]:
    """Mode and xattrs of something created under a directory with that default list."""
    is_dir, is_link = mode & 0o170000 == 0o040000, mode & 0o170000 == 0o120000
    if default is None or is_link:
        return mode, {}
    entries = decode(default)
    bits = _bits(entries)
    group_tag = _MASK if _MASK in bits else _GROUP_OBJ
    limit = {_USER_OBJ: mode >> 6 & 7, group_tag: mode >> 3 & 7, _OTHER: mode & 7}
    access = [(tag, perm & limit.get(tag, 7), who) for tag, perm, who in entries]
    xattrs = {} if is_minimal(access) else {ACCESS: encode(access)}
    if is_dir:
        xattrs[DEFAULT] = default
    return mode_of(access, mode), xattrs
