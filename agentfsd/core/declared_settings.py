"""Declares the settings of an overlay: name, default, check of a new value, and explanation for the help.

The modules that apply a setting read it from here; this module imports none of them.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass

from agentfsd.domain_errors import invalid
from agentfsd.metadata.row_store import Store

MODE_STRATEGIES = ("clone", "clone&umask", "fixed")
ACL_STRATEGIES = ("clone", "drop", "map-basic")
IO_MODES = ("auto", "overlay", "zero-message", "passthrough", "cached")  # of run.io
CONFINE_PROFILES = ("off", "workspace", "strict")

# Files that the user's own programs (git, editors, shells, agents) run or obey once they are in the real directory.
# Patterns as in .gitignore.
EXECUTED_PATHS = (
    "**/.git/hooks/* !**/.git/hooks/*.sample **/.git/modules/**/hooks/* !**/.git/modules/**/hooks/*.sample .githooks/ .husky/ "
    ".pre-commit-config.yaml **/.claude/settings*.json **/.claude/hooks/ .mcp.json .codex/ **/.gemini/settings.json "
    "**/.cursor/mcp.json **/.cursor/hooks.json .opencode/ **/.vscode/tasks.json **/.vscode/settings.json **/.vscode/launch.json "
    "**/.zed/tasks.json **/.zed/settings.json **/.idea/runConfigurations/ .devcontainer/ "
    ".envrc .exrc .nvimrc .nvim.lua .dir-locals.el"
)

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}
_SIZES = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
_DIGITS_MAX = 15
LEAST_BYTES = 1 << 16


def parse_age(text: str) -> float:
    """Parse an age such as "90", "15m", "12h", "30d", "2w" or "0" (no limit).

    Returns:
        The age in seconds.

    Raises:
        Refusal: ``invalid``.
    """
    unit = _UNITS.get(text[-1:], 0)
    number = text[:-1] if unit else text
    try:
        age = float(number) * (unit or 1)
    except ValueError:
        age = -1
    if not 0 <= age < 1e12:
        raise invalid(f"{text!r} is not an age", "give seconds, or a number with s, m, h, d or w, such as 30d; 0 is no limit")
    return age


def _age(value: str) -> str:
    parse_age(value)
    return value


def _count(value: str) -> str:
    if not (value.isascii() and value.isdecimal() and len(value) <= _DIGITS_MAX):
        raise invalid(f"{value!r} is not a number of snapshots", "give a number; 0 is no limit")
    return value


def _bytes(value: str) -> str:
    parse_bytes(value)
    return value


def bytes_of(text: str) -> int | None:
    """Parse a size such as "1048576", "512K", "16M" or "1G". Return it in bytes; None if *text* is no size."""
    unit = _SIZES.get(text[-1:].upper(), 0)
    number = text[:-1] if unit else text
    return int(number) * (unit or 1) if number.isascii() and number.isdecimal() and len(number) <= _DIGITS_MAX else None


def parse_bytes(text: str) -> int:
    """Parse a limit of space, 64 KiB to 1 TiB, in the form that bytes_of() takes.

    Returns:
        The size in bytes.

    Raises:
        Refusal: ``invalid``.
    """
    size = bytes_of(text)
    if size is None or not LEAST_BYTES <= size <= 1 << 40:
        raise invalid(f"{text!r} is not a size for this", "give bytes, 64K to 1024G, such as 16M")
    return size


def _milliseconds(value: str) -> str:
    if not (value.isascii() and value.isdecimal() and len(value) <= 9):
        raise invalid(f"{value!r} is no time in milliseconds", "give a number, such as 250; 0 is off")
    return value


def _yes_or_no(value: str) -> str:
    if value not in ("yes", "no"):
        raise invalid(f"{value!r} is neither yes nor no", "give yes or no")
    return value


def _permissions(value: str) -> str:
    if not re.fullmatch(r"(0o?)?[0-7]{1,3}", value):
        raise invalid(f"{value!r} is not a set of permission bits", "give them in octal, 000 to 777, such as 644")
    return f"{int(value, 8):03o}"


def _one_of(*words: str) -> Callable[[str], str]:
    def check(value: str) -> str:
        if value not in words:
            raise invalid(f"{value!r} is not a strategy of this setting", f"give one of {', '.join(words)}")
        return value

    return check


def _patterns(value: str) -> str:
    return " ".join(value.split())


def _profiles_of_branches(value: str) -> str:
    for rule in value.split():
        pattern, equals, profile = rule.partition("=")
        if not (pattern and equals and profile in CONFINE_PROFILES):
            hint = f"write PATTERN=PROFILE, such as agent-*=strict; profiles are {', '.join(CONFINE_PROFILES)}"
            raise invalid(f"{rule!r} is not a profile for branches", hint)
    return " ".join(value.split())


@dataclass(frozen=True, slots=True)
class Setting:
    """A named value that the user can change while the overlay is mounted. The overlay's database stores it.

    Attributes:
        name: The name, as in ``agentfsd policy set NAME VALUE``.
        default: The value until the user sets another.
        normalized: A function that returns a given value in the form that is stored, or raises Refusal for an invalid one.
        meaning: What the setting does, for the help of ``agentfsd policy``.
    """

    name: str
    default: str
    normalized: Callable[[str], str]
    meaning: str


_DECLARED = (
    Setting("retention.max_count", "0", _count, "how many snapshots of a branch are kept; 0: all, but see automatic_count"),
    Setting("retention.automatic_count", "100", _count,
            "how many of those that run, restore and merge take are kept of a branch, in any case; 0: all"),
    Setting("retention.step_count", "500", _count,
            "how many of those that the hooks of agents take are kept of a branch, in any case; 0: all"),
    Setting("retention.max_age", "0", _age, "how long a snapshot is kept (30d, 12h); 0: for ever"),
    Setting("retention.keep_named", "yes", _yes_or_no, "yes: a snapshot with a name is always kept"),
    Setting("retention.keep_tagged", "no", _yes_or_no,
            "yes: a snapshot with a tag is always kept, too; no: a tag alone does not keep it"),
    Setting("copyup.mode_strategy", "clone", _one_of(*MODE_STRATEGIES),
            "mode of a file or directory when a branch first changes it: clone (the lower's), 'clone&umask', or fixed"),
    Setting("copyup.umask", "022", _permissions, "the bits that clone&umask takes away, in octal"),
    Setting("copyup.file_mode", "644", _permissions, "the mode that fixed gives to files, in octal"),
    Setting("copyup.dir_mode", "755", _permissions, "the mode that fixed gives to directories, in octal"),
    Setting("copyup.acl_strategy", "clone", _one_of(*ACL_STRATEGIES),
            "access list in this case: clone; drop (as setfacl -b); or map-basic (drop, and give its rights to the group)"),
    Setting("confine", "workspace", _one_of(*CONFINE_PROFILES),
            "how `run` confines a command without --confine: off, workspace or strict"),
    Setting("confine.branches", "", _profiles_of_branches,
            "profiles for branches by name: PATTERN=PROFILE..., such as agent-*=strict; the first match counts"),
    Setting("confine.home", "profile", _one_of("profile", "overlay", "ro", "hide", "rw"),
            "how a confined command sees the home directory: as the profile says, or overlay, ro, hide, rw"),
    Setting("run.io", "auto", _one_of(*IO_MODES),
            "how file data reaches a command of `run` without --io: see `agentfsd run --help`"),
    Setting("run.report", "no", _yes_or_no, "yes: `run` always reports what was refused, and what changed elsewhere"),
    Setting("executed.paths", EXECUTED_PATHS, _patterns,
            "files that commit and merge refuse without --hooks, as your programs would run them: patterns as in .gitignore"),
    Setting("asks.timeout", "2m", _age,
            "how long a process waits for an answer where a rule says ask (30s, 10m); then it is denied; 0: for ever"),
    Setting("audit.enabled", "yes", _yes_or_no, "yes: the audit trail records who changes what (`agentfsd audit`)"),
    Setting("audit.max_bytes", "16M", _bytes, "the size limit of the audit trail, such as 64M; beyond it the oldest entries go"),
    Setting("log.slow_ms", "250", _milliseconds, "requests that take longer are logged, and counted in status; 0: none"),
)  # fmt: skip
SETTINGS = {setting.name: setting for setting in _DECLARED}


def read(store: Store) -> dict[str, str]:
    """Return the value of every setting, by name."""
    return {name: store.value(f"policy.{name}") or setting.default for name, setting in sorted(SETTINGS.items())}


def check(name: str, value: str) -> str:
    """Return a value in the form that is stored.

    Raises:
        Refusal: ``no-such-setting`` for an unknown name, ``invalid`` for an invalid value.
    """
    if name not in SETTINGS:
        raise invalid(f"there is no setting named {name!r}", f"there are {', '.join(sorted(SETTINGS))}", "no-such-setting")
    return SETTINGS[name].normalized(value)


def write(store: Store, name: str, value: str) -> None:
    """Check a value and store it, in the open transaction. Refusal as check()."""
    store.put_value(f"policy.{name}", check(name, value))
