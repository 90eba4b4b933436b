"""POSIX access control lists as the kernel stores them in xattrs: permission checks, inheritance, and agreement with mode bits.

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
    """Return the (tag, permissions, id) entries of an xattr value; ValueError if it is not an access control list."""
    if len(value) < _HEADER.size or _HEADER.unpack_from(value)[0] != _VERSION:
        raise ValueError("not an access control list")
    return list(_ENTRY.iter_unpack(value[_HEADER.size :]))


def encode(entries: Entries) -> bytes:
    """Return the xattr value of a list."""
    return _HEADER.pack(_VERSION) + b"".join(_ENTRY.pack(*entry) for entry in entries)


def _bits(entries: Entries) -> dict[int, int]:
    return {tag: perm for tag, perm, _ in entries if tag in (_USER_OBJ, _GROUP_OBJ, _MASK, _OTHER)}


def mode_of(entries: Entries, mode: int) -> int:
    """Return *mode* with the permission bits that a list stands for. If the list has a mask, the group bits are the mask."""
    bits = _bits(entries)
    group = bits.get(_MASK, bits.get(_GROUP_OBJ, 0))
    return (mode & ~0o777) | bits.get(_USER_OBJ, 0) << 6 | group << 3 | bits.get(_OTHER, 0)


def with_mode(entries: Entries, mode: int) -> Entries:
    """Return the list as chmod(2) to *mode* changes it: the group bits go to the mask, or to the owning group without one."""
    group_tag = _MASK if any(tag == _MASK for tag, _, _ in entries) else _GROUP_OBJ
    new = {_USER_OBJ: mode >> 6 & 7, group_tag: mode >> 3 & 7, _OTHER: mode & 7}
    return [(tag, new.get(tag, perm), who) for tag, perm, who in entries]


def without_list(entries: Entries, mode: int, *, fold: bool) -> int:
    """Return the mode of a file whose list is removed.

    The owning group keeps the permissions that the mask allowed it, as after ``setfacl -b``.

    Args:
        entries: The list that is removed.
        mode: The file's mode with the list.
        fold: Give the owning group also the permissions that named users and named groups had.
    """
    bits = _bits(entries)
    group = bits.get(_GROUP_OBJ, 0)
    if fold:
        for tag, perm, _ in entries:
            group |= perm if tag in (_USER, _GROUP) else 0
    return (mode & ~0o777) | bits.get(_USER_OBJ, 0) << 6 | (group & bits.get(_MASK, 7)) << 3 | bits.get(_OTHER, 0)


def granted(entries: Entries, wanted: int, uid: int, groups: frozenset[int], gid: int) -> int:
    """Return the permissions (rwx bits) that a list grants to a process whose user does not own the file.

    Args:
        entries: The file's access list.
        wanted: The rwx bits asked for. If several group entries match, one that grants all of these is used.
        uid: The user of the process.
        groups: The groups of the process.
        gid: The file's group.
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
    """Return whether the list has only entries that the mode bits express as well."""
    return all(tag in (_USER_OBJ, _GROUP_OBJ, _OTHER) for tag, _, _ in entries)


def inherit(default: bytes | None, mode: int) -> tuple[int, dict[bytes, bytes]]:
    """Return mode and xattrs of a new object in a directory with that default list; *mode* is the one asked for."""
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
