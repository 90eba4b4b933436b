"""The settings for real descriptors, which are stored with the overlay. It never knows a file or a process."""

import fnmatch
import os
from dataclasses import dataclass

from agentfsd.core.declared_settings import Setting, bytes_of
from agentfsd.domain_errors import invalid
from agentfsd.metadata.row_store import Store

_MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class ForwardingSettings:
    """The parsed settings. wire.InterposeReply explains each. Source: InterposeConfig of the AgentFS specification."""

    enabled: bool
    eager_upperization: bool
    max_copy_bytes: int
    require_reflink: bool
    min_read_bytes: int
    allow: tuple[str, ...]

    def allows(self, program: str) -> bool:
        """Return whether a program (the path of its executable) is on the list. "" is on no list but the empty one."""
        if not self.allow:
            return True
        names = (program, os.path.basename(program)) if program else ()
        return any(fnmatch.fnmatchcase(name, pattern) for pattern in self.allow for name in names)


def _switch(value: str) -> str:
    word = {"on": "on", "yes": "on", "true": "on", "off": "off", "no": "off", "false": "off"}.get(value.lower())
    if word is None:
        raise invalid(f"{value!r} is neither on nor off", "give on or off")
    return word


def _number_of_bytes(value: str) -> str:
    size = bytes_of(value)
    if size is None:
        raise invalid(f"{value!r} is not a number of bytes", "give a number, such as 1048576, 64M or 2G")
    return str(size)


def _words(value: str) -> str:
    return " ".join(value.split())


_DECLARED = (
    Setting("enabled", "off", _switch, "on: programs get real descriptors; off: they do not"),
    Setting("eager_upperization", "on", _switch,
            "on: a file is copied up even for a program that only reads, so that it sees later changes"),
    Setting("max_copy_bytes", str(64 * _MIB), _number_of_bytes,
            "the most that is copied for a descriptor where blocks cannot be shared, such as 64M"),
    Setting("require_reflink", "off", _switch, "on: nothing is copied"),
    Setting("min_read_bytes", str(_MIB), _number_of_bytes,
            "the size of a file below which a program that only reads gets no descriptor, such as 1M"),
    Setting("allow", "", _words, "the programs that get descriptors, by path or name, with * and ?; empty: all"),
)  # fmt: skip
SETTINGS = {setting.name: setting for setting in _DECLARED}


def texts(store: Store) -> dict[str, str]:
    """Return every setting by name, as it is stored."""
    return {name: store.value(f"interpose.{name}") or setting.default for name, setting in SETTINGS.items()}


def load(store: Store) -> ForwardingSettings:
    """Return the parsed settings of an overlay."""
    values = texts(store)
    return ForwardingSettings(
        values["enabled"] == "on", values["eager_upperization"] == "on", int(values["max_copy_bytes"]),
        values["require_reflink"] == "on", int(values["min_read_bytes"]), tuple(values["allow"].split()),
    )  # fmt: skip


def check(name: str, value: str) -> str:
    """Return a value in its stored form. Refusal for an unknown name or an invalid value."""
    if name not in SETTINGS:
        raise invalid(f"there is no setting named {name!r}", f"there are {', '.join(SETTINGS)}", "no-such-setting")
    return SETTINGS[name].normalized(value)


def write(store: Store, name: str, value: str) -> None:
    """Store a setting in the open transaction. Refusal like check()."""
    store.put_value(f"interpose.{name}", check(name, value))
