"""What a run may see and change besides its branch: a profile, and the parts of it that the command line replaces.

This module does not look at the file system; layout.py turns the profile into places.
"""

import errno
import fnmatch
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, cast, get_args

from agentfsd.domain_errors import Refusal

Profile = Literal["off", "workspace", "strict"]
Home = Literal["overlay", "ro", "hide", "rw"]
Access = Literal["ro", "rw"]
Tmp = Literal["private", "shared"]
Net = Literal["host", "none"]

PROFILES: tuple[str, ...] = get_args(Profile)
_PARTS: dict[str, tuple[Home, Access, Tmp, Net]] = {
    "off": ("rw", "rw", "shared", "host"),
    "workspace": ("rw", "rw", "shared", "host"),
    "strict": ("overlay", "ro", "private", "host"),
}


@dataclass(frozen=True, slots=True)
class Asked:
    """The options of confinement. An option that was not given is None. Paths are absolute and resolved."""

    profile: str | None = None
    home: str | None = None
    rest: str | None = None
    tmp: str | None = None
    net: str | None = None
    write: tuple[str, ...] = ()
    read: tuple[str, ...] = ()
    hide: tuple[str, ...] = ()

    @property
    def is_anything(self) -> bool:
        """Whether a part was requested, so that the command must not start without it."""
        return any((self.home, self.rest, self.tmp, self.net, self.write, self.read, self.hide))


@dataclass(frozen=True, slots=True)
class Confinement:
    """The confinement of one run, with all parts decided.

    Attributes:
        is_asked: The command must not start without all of it: the profile is strict, or a part was requested.
    """

    profile: Profile
    home: Home
    rest: Access
    tmp: Tmp
    net: Net
    write: tuple[str, ...] = ()
    read: tuple[str, ...] = ()
    hide: tuple[str, ...] = ()
    is_asked: bool = False

    @property
    def is_strict(self) -> bool:
        """Whether the profile is strict."""
        return self.profile == "strict"

    @property
    def covers(self) -> bool:
        """Whether the real files, state directories and other mounts are covered."""
        return self.profile != "off"

    @property
    def is_plain(self) -> bool:
        """Whether nothing but the branch itself is mounted."""
        return self.profile == "off" and not self.is_asked


def decide(asked: Asked, settings: Mapping[str, str], branch: str) -> Confinement:
    """Combine the command line with the overlay's settings. Settings for *branch* take precedence over those for all branches."""
    profile = asked.profile or profile_of(settings, branch)
    home, rest, tmp, net = _PARTS[profile]
    if asked.profile is None and settings.get("confine.home", "profile") != "profile":
        home = cast(Home, settings["confine.home"])
    return Confinement(
        cast(Profile, profile), cast(Home, asked.home or home), cast(Access, asked.rest or rest), cast(Tmp, asked.tmp or tmp),
        cast(Net, asked.net or net), asked.write, asked.read, asked.hide,
        asked.is_anything or profile == "strict" or home != _PARTS[profile][0],
    )  # fmt: skip


def profile_of(settings: Mapping[str, str], branch: str) -> str:
    """Return the profile for a branch: the first matching pattern of `confine.branches`, else `confine`."""
    for rule in settings.get("confine.branches", "").split():
        pattern, _, profile = rule.partition("=")
        if fnmatch.fnmatchcase(branch, pattern):
            return profile
    return settings.get("confine", "workspace")


def impossible(why: str, hint: str = "") -> Refusal:
    """Return the refusal of a run that cannot be confined as requested."""
    return Refusal(
        errno.EPERM, "not-confined", f"the command cannot be confined as asked: {why}", hint or
        "'agentfsd doctor' says what this kernel can; --confine workspace does what is possible, --confine off nothing",
    )  # fmt: skip
