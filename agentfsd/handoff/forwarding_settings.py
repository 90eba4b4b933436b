"""The settings for real descriptors, which are stored with the overlay. It never knows a file or a process."""

import fnmatch
import os
from dataclasses import dataclass

from agentfsd.core.policy_settings import bytes_of
from agentfsd.errors import invalid
from agentfsd.metadata.row_store import Store

_MIB = 1 << 20
_DEFAULTS = {
    "enabled": "off",
    "eager_upperization": "on",
    "max_copy_bytes": str(64 * _MIB),
    "require_reflink": "off",
    "min_read_bytes": str(_MIB),
    "allow": "",
}


@dataclass(frozen=True, slots=True)
class ForwardingSettings:
    """Source: InterposeConfig of the AgentFS specification. See wire.InterposeReply for what each one means."""

    enabled: bool
    eager_upperization: bool
    max_copy_bytes: int
    require_reflink: bool
    min_read_bytes: int
    allow: tuple[str, ...]

    def allows(self, program: str) -> bool:
        """Whether a program (the path of its executable) is on the list; "" is on none."""
        if not self.allow:
            return True
        names = (program, os.path.basename(program)) if program else ()
        return any(fnmatch.fnmatchcase(name, pattern) for pattern in self.allow for name in names)


def texts(store: Store) -> dict[str, str]:
    """Return every setting by name, as it is stored."""
    return {name: store.value(f"interpose.{name}") or default for name, default in _DEFAULTS.items()}


def load(store: Store) -> ForwardingSettings:
    found = texts(store)
    return ForwardingSettings(
        found["enabled"] == "on", found["eager_upperization"] == "on", int(found["max_copy_bytes"]),
        found["require_reflink"] == "on", int(found["min_read_bytes"]), tuple(found["allow"].split()),
    )  # fmt: skip


def check(name: str, value: str) -> str:
    """Return the form in which a value is stored. Refusal for an unknown name, or a value that makes no sense."""
    if name not in _DEFAULTS:
        raise invalid(f"there is no setting named {name!r}", f"there are {', '.join(_DEFAULTS)}", "no-such-setting")
    if name.endswith("_bytes"):
        value = str(_bytes(value))
    elif name != "allow":
        value = _switch(value)
    return " ".join(value.split())


def write(store: Store, name: str, value: str) -> None:
    """Store a setting in the open transaction. Refusal like check()."""
    store.put_value(f"interpose.{name}", check(name, value))


def _switch(value: str) -> str:
    found = {"on": "on", "yes": "on", "true": "on", "off": "off", "no": "off", "false": "off"}.get(value.lower())
    if found is None:
        raise invalid(f"{value!r} is neither on nor off", "give on or off")
    return found


def _bytes(value: str) -> int:
    size = bytes_of(value)
    if size is None:
        raise invalid(f"{value!r} is no number of bytes", "give a number, such as 1048576, 64M or 2G")
    return size
