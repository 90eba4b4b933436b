"""Reads git's configuration as git does (config.c). It opens no file, and does not know what a setting means."""

import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

_TOKEN = re.compile(
    rb"""
      (?P<blank> \s+ | [#;][^\n]* )
    | \[ (?P<section> [A-Za-z0-9.-]* ) (?: [ \t]+ " (?P<name> (?: [^"\\\n] | \\[^\n] )* ) " )? \]
    | (?P<key> [A-Za-z][A-Za-z0-9-]* ) [ \t\r]*
      (?: = (?P<value> (?: " (?: [^"\\\n] | \\\r?\n | \\. )* " | \\\r?\n | \\. | [^\n\\"\#;] )* )
      (?: [#;][^\n]* )? | (?= \n | \Z ) )
    """,
    re.VERBOSE,
)
_QUOTING = re.compile(rb'\\\r?\n|"')
_TRUE = (b"true", b"yes", b"on", b"1", b"")  # a key alone is true as well


class GitSetting(NamedTuple):
    """A setting of git, such as ``remote.origin.url``; *section* and *key* in lower case."""

    section: bytes
    name: bytes
    key: bytes
    value: bytes


def settings(text: bytes) -> Iterator[GitSetting]:
    """Yield the settings of a file in order. From where git could not read on, the whole rest is one section without a key."""
    section, name, at = b"", b"", 3 if text.startswith(b"\xef\xbb\xbf") else 0
    while at < len(text):
        token = _TOKEN.match(text, at)
        if token is None:
            yield GitSetting(text[at:], b"", b"", b"")
            return
        at = token.end()
        if token["section"] is not None:
            section, _, old_name = token["section"].lower().partition(b".")
            name = token["name"] or old_name
        elif token["key"] is not None:
            yield GitSetting(section, name, token["key"].lower(), _QUOTING.sub(b"", token["value"] or b"").strip())


def is_true(value: bytes) -> bool:
    """Return whether git takes a value for true."""
    return value.lower() in _TRUE


def values(found: Iterable[GitSetting], section: bytes) -> dict[bytes, bytes]:
    """Return the last value of each key of a section without a name."""
    return {setting.key: setting.value for setting in found if (setting.section, setting.name) == (section, b"")}
