"""Tells which settings of git make it run a program or work on other files.

Sections that it does not know count as such. This module opens no file.
"""

from agentfsd.repositories.git_config import GitSetting, settings

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


def running(text: bytes) -> set[GitSetting]:
    """Return the settings that make git run a program, or work on files elsewhere.

    From where git could not read on, the whole rest is one such setting, a section.
    """
    return {setting for setting in settings(text) if _runs(setting)}


def _runs(setting: GitSetting) -> bool:
    section, name, key, value = setting
    if section not in _HARMLESS or key in _RUNNING:
        return True
    if (section, key) == (b"submodule", b"update"):
        return b"!" in value
    is_address = section == b"url" or key in (b"url", b"pushurl")  # a program for "NAME::ADDRESS" is git-remote-NAME
    return is_address and b"::" in name + b" " + value
