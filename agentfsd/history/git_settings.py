"""Reads git's configuration as git does (config.c), and tells which settings make git run a program or work on other files.

Sections that it does not know count as such. This module opens no file.
"""

import re
from typing import NamedTuple

_HARMLESS = frozenset(
    b"add advice am apply author blame branch checkout clean clone color column commit commitgraph committer core diff extensions"
    b" feature fetch format fsck gc grep http i18n index init lfs log maintenance merge notes pack promisor pull push rebase"
    b" receive reftable remote repack rerere safe sequence showbranch sparse splitindex stash status submodule tag transfer"
    b" uploadarchive uploadpack url user versionsort worktree".split()
)
_RUNNING = frozenset(
    b"alternaterefscommand askpass attributesfile clean cmd command difffilter driver editor external fsmonitor gitproxy"
    b" hookspath packobjectshook pager path process program receivepack recentobjectshook smudge sshcommand"
    b" standalonetransferagent templatedir textconv uploadpack vcs worktree".split()
)

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


class GitSetting(NamedTuple):
    """A setting of git, such as ``remote.origin.url``; *section* and *key* in lower case."""

    section: bytes
    name: bytes
    key: bytes
    value: bytes


def running(text: bytes) -> set[GitSetting]:
    """Return the settings that make git run a program, or work on files elsewhere.

    From where git could not read on, the whole rest is one such setting, a section.
    """
    found: set[GitSetting] = set()
    section, name, at = b"", b"", 3 if text.startswith(b"\xef\xbb\xbf") else 0
    while at < len(text):
        token = _TOKEN.match(text, at)
        if token is None:
            return found | {GitSetting(text[at:], b"", b"", b"")}
        at = token.end()
        if token["section"] is not None:
            section, _, old_name = token["section"].lower().partition(b".")
            name = token["name"] or old_name
        elif token["key"] is not None:
            setting = GitSetting(section, name, token["key"].lower(), _QUOTING.sub(b"", token["value"] or b"").strip())
            if _runs(setting):
                found.add(setting)
    return found


def _runs(setting: GitSetting) -> bool:
    section, name, key, value = setting
    if section not in _HARMLESS or key in _RUNNING:
        return True
    if (section, key) == (b"submodule", b"update"):
        return b"!" in value
    is_address = section == b"url" or key in (b"url", b"pushurl")  # a program for "NAME::ADDRESS" is git-remote-NAME
    return is_address and b"::" in name + b" " + value
