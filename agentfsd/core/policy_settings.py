"""The settings of an overlay by name: their defaults, and which values make sense. It must never know what they do."""

import re
from collections.abc import Callable

from agentfsd.errors import invalid
from agentfsd.metadata.row_store import Store

MODE_STRATEGIES = ("clone", "clone&umask", "fixed")
ACL_STRATEGIES = ("clone", "drop", "map-basic")
CONFINE_PROFILES = ("off", "workspace", "strict")

# Files that run on the person's side once they are in the real directory: by their names, as in .gitignore.
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
    """Seconds of "90", "15m", "12h", "30d" or "0" (no limit)."""
    unit = _UNITS.get(text[-1:], 0)
    number = text[:-1] if unit else text
    try:
        age = float(number) * (unit or 1)
    except ValueError:
        age = -1
    if not 0 <= age < 1e12:
        raise invalid(f"{text!r} is no age", "give seconds, or a number with s, m, h, d or w, such as 30d; 0 is no limit")
    return age


def _age(value: str) -> str:
    parse_age(value)
    return value


def _count(value: str) -> str:
    if not (value.isascii() and value.isdecimal() and len(value) <= _DIGITS_MAX):
        raise invalid(f"{value!r} is no number of snapshots", "give a number; 0 is no limit")
    return value


def _bytes(value: str) -> str:
    parse_bytes(value)
    return value


def bytes_of(text: str) -> int | None:
    """Of "1048576", "512K", "16M" or "1G"; None for what is no size."""
    unit = _SIZES.get(text[-1:].upper(), 0)
    number = text[:-1] if unit else text
    return int(number) * (unit or 1) if number.isascii() and number.isdecimal() and len(number) <= _DIGITS_MAX else None


def parse_bytes(text: str) -> int:
    """Likewise, for what takes room; Refusal."""
    size = bytes_of(text)
    if size is None or not LEAST_BYTES <= size <= 1 << 40:
        raise invalid(f"{text!r} is no size for this", "give bytes, 64K to 1024G, such as 16M")
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
        raise invalid(f"{value!r} is no set of permission bits", "give them in octal, 000 to 777, such as 644")
    return f"{int(value, 8):03o}"


def _one_of(*words: str) -> Callable[[str], str]:
    def check(value: str) -> str:
        if value not in words:
            raise invalid(f"{value!r} is no strategy of this setting", f"give one of {', '.join(words)}")
        return value

    return check


def _patterns(value: str) -> str:
    return " ".join(value.split())


def _profiles_of_branches(value: str) -> str:
    for rule in value.split():
        pattern, equals, profile = rule.partition("=")
        if not (pattern and equals and profile in CONFINE_PROFILES):
            hint = f"write PATTERN=PROFILE, such as agent-*=strict; profiles are {', '.join(CONFINE_PROFILES)}"
            raise invalid(f"{rule!r} is no profile for branches", hint)
    return " ".join(value.split())


# name: (default, what makes of a value what is stored; Refusal for one that makes no sense)
_SETTINGS: dict[str, tuple[str, Callable[[str], str]]] = {
    "audit.enabled": ("yes", _yes_or_no),
    "audit.max_bytes": ("16M", _bytes),
    "confine": ("workspace", _one_of(*CONFINE_PROFILES)),
    "confine.branches": ("", _profiles_of_branches),
    "confine.home": ("profile", _one_of("profile", "ro", "hide", "rw")),
    "copyup.acl_strategy": ("clone", _one_of(*ACL_STRATEGIES)),
    "copyup.dir_mode": ("755", _permissions),
    "copyup.file_mode": ("644", _permissions),
    "copyup.mode_strategy": ("clone", _one_of(*MODE_STRATEGIES)),
    "copyup.umask": ("022", _permissions),
    "executed.paths": (EXECUTED_PATHS, _patterns),
    "log.slow_ms": ("250", _milliseconds),
    "retention.keep_named": ("yes", _yes_or_no),
    "retention.keep_tagged": ("no", _yes_or_no),
    "retention.max_age": ("0", _age),
    "retention.max_count": ("0", _count),
}


def read(store: Store) -> dict[str, str]:
    """Every setting by name."""
    return {name: store.value(f"policy.{name}") or default for name, (default, _) in _SETTINGS.items()}


def check(name: str, value: str) -> str:
    """What is stored of a value. Refusal for an unknown name or a value that makes no sense."""
    if name not in _SETTINGS:
        raise invalid(f"there is no setting named {name!r}", f"there are {', '.join(_SETTINGS)}", "no-such-setting")
    return _SETTINGS[name][1](value)


def write(store: Store, name: str, value: str) -> None:
    """In the open transaction. Refusal like check()."""
    store.put_value(f"policy.{name}", check(name, value))
