"""What this process is privileged to do, as /proc says."""

_CAP_SYS_ADMIN = 21  # capabilities(7)


def has_sys_admin() -> bool:
    """Return whether this process has CAP_SYS_ADMIN."""
    return bool(int(_status("CapEff"), 16) & 1 << _CAP_SYS_ADMIN)


def may_gain_sys_admin() -> bool:
    """Return whether a setuid program can have CAP_SYS_ADMIN here: whether it is in the bounding set."""
    return bool(int(_status("CapBnd"), 16) & 1 << _CAP_SYS_ADMIN)


def has_no_new_privileges() -> bool:
    """Return whether setuid programs gain nothing in this process."""
    return _status("NoNewPrivs") == "1"


def _status(field: str) -> str:
    with open("/proc/self/status") as file:
        return next(line.split()[1] for line in file if line.startswith(f"{field}:"))
