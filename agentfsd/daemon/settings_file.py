"""The settings file of a mount: it is read and checked as a whole, then applied. This module knows no signal and no request.

Lines are `name = value`; `#` begins a comment. Names are those of `agentfsd policy` and, after `interpose.`, of
`agentfsd interpose`; `log.level` is a level of the log. A setting that the file does not name stays as it is.
"""

import errno
import logging
import os
import stat
from collections.abc import Callable
from typing import NamedTuple

from agentfsd.core import declared_settings
from agentfsd.core.overlay import Overlay
from agentfsd.domain_errors import Refusal, invalid
from agentfsd.handoff import forwarding_settings as interpose
from agentfsd.handoff.descriptor_forwarding import Forwarding
from agentfsd.process.daemon_log import LEVELS

_INTERPOSE, _LEVEL = "interpose.", "log.level"
_MOST_BYTES = 1 << 20


class SettingLine(NamedTuple):
    name: str
    value: str


def read(path: str) -> list[SettingLine]:
    """Return the settings of a file in order; none when there is no file.

    Raises:
        Refusal: The file cannot be read, or a line is invalid; the message names the line.
    """
    if not path:
        return []
    try:
        lines = _text(path).splitlines()
    except FileNotFoundError:
        return []
    except (OSError, UnicodeDecodeError) as exc:
        why = exc.strerror if isinstance(exc, OSError) else "it is not UTF-8"
        raise Refusal(errno.EINVAL, "bad-settings", f"cannot read the settings in {path}: {why}") from None
    settings = []
    for number, line in enumerate(lines, 1):
        text = line.partition("#")[0].strip()
        if text:
            settings.append(_checked(text, f"{path}:{number}"))
    return settings


def _text(path: str) -> str:
    """Read an ordinary file. OSError for anything else: a pipe waits for a writer, and a device may have no end."""
    with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode) and path != os.devnull:
            raise OSError(errno.EINVAL, "it is not an ordinary file")
        data = file.read(_MOST_BYTES + 1)
    if len(data) > _MOST_BYTES:
        raise OSError(errno.EFBIG, f"it is larger than {_MOST_BYTES >> 20} MiB")
    return data.decode()


def _checked(text: str, where: str) -> SettingLine:
    name, equals, value = (part.strip() for part in text.partition("="))
    try:
        if not equals:
            raise invalid(f"{text!r} is not a setting", "write NAME = VALUE")
        _check_of(name)(value)
    except Refusal as exc:
        raise Refusal(errno.EINVAL, "bad-settings", f"{where}: {exc.message}", exc.hint) from None
    return SettingLine(name, value)


def _check_of(name: str) -> Callable[[str], object]:
    if name == _LEVEL:
        return _check_level
    if name.startswith(_INTERPOSE):
        return lambda value: interpose.check(name.removeprefix(_INTERPOSE), value)
    return lambda value: declared_settings.check(name, value)


def _check_level(value: str) -> None:
    if value not in LEVELS:
        raise invalid(f"{value!r} is not a log level", f"give one of {', '.join(LEVELS)}")


def apply(lines: list[SettingLine], overlay: Overlay, forwarding: Forwarding) -> None:
    """Apply all settings or none, and store those that belong to the overlay. OSError when that fails."""
    with overlay.store.transaction() as tx:
        for name, value in lines:
            if name.startswith(_INTERPOSE):
                forwarding.put(tx, name.removeprefix(_INTERPOSE), value)
            elif name != _LEVEL:
                overlay.settings.put(tx, name, value)
    for name, value in lines:
        if name == _LEVEL:
            logging.getLogger().setLevel(value.upper())
