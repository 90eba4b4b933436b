"""Finds the home directory of the user who runs this process."""

import os
import pwd

_NO_HOME = frozenset(
    {"/", "/bin", "/boot", "/dev", "/etc", "/home", "/lib", "/proc", "/run", "/sbin", "/sys", "/tmp", "/usr", "/var"}
)


def find() -> str:
    """Return $HOME, or else what the user database has, resolved; "" for none. Never a directory of the system, such as "/"."""
    for chosen in (os.environ.get("HOME"), _home_of_user()):
        if chosen and os.path.isabs(chosen) and os.path.isdir(chosen) and os.path.realpath(chosen) not in _NO_HOME:
            return os.path.realpath(chosen)
    return ""


def _home_of_user() -> str:
    try:
        return pwd.getpwuid(os.geteuid()).pw_dir
    except KeyError:
        return ""
