"""What a run may see and change besides its branch: the profiles, and what somebody asks for instead of one of their parts.

It must never look at the file system: layout.py turns these words into places.
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
    """What the command line says; None where it says nothing. Paths are absolute and resolved."""

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
        """Whether somebody relies on a part that a profile alone would not promise."""
        return any((self.home, self.rest, self.tmp, self.net, self.write, self.read, self.hide))


@dataclass(frozen=True, slots=True)
class Confinement:
    """All parts of it, decided.

    Attributes:
        is_asked: Whether the command must not start without all of it: the profile is strict, or a part was asked for.
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
        return self.profile == "strict"

    @property
    def covers(self) -> bool:
        """Whether the real files, state directories and other mounts are covered."""
        return self.profile != "off"

    @property
    def is_plain(self) -> bool:
        """Whether nothing is to be mounted but the branch itself."""
        return self.profile == "off" and not self.is_asked


def decide(asked: Asked, settings: Mapping[str, str], branch: str) -> Confinement:
    """Combine the command line with the overlay's settings, those for *branch* before those for all."""
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
    """The first of `confine.branches` whose pattern matches, else `confine`."""
    for rule in settings.get("confine.branches", "").split():
        pattern, _, profile = rule.partition("=")
        if fnmatch.fnmatchcase(branch, pattern):
            return profile
    return settings.get("confine", "workspace")


def impossible(why: str, hint: str = "") -> Refusal:
    """The refusal of a run that cannot be confined as it was asked for."""
    return Refusal(
        errno.EPERM, "not-confined", f"the command cannot be confined as asked: {why}", hint or
        "'agentfsd doctor' says what this kernel can; --confine workspace does what is possible, --confine off nothing",
    )  # fmt: skip
