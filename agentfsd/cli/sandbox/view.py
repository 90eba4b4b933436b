"""What a command is shown of its branch."""

import os
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class View:
    """What the command shall see instead of the directories *targets*, in a private namespace: the directory *source*.

    With ``mount`` it is a mount that is nowhere yet instead, by its descriptor. Then ``user_namespace`` is entered first, if
    there is one, and ``inside`` (a directory and its name there) is mounted in it. ``home`` is a mount for the
    home directory, if the plan has a place for one; ``home_why``: why there is none. The view owns the descriptors.
    """

    targets: Sequence[str]
    source: str = ""
    mount: int | None = None
    user_namespace: int | None = None
    inside: tuple[str, str] = ("", "")
    home: int | None = None
    home_why: str = ""

    def close(self) -> None:
        for fd in (self.mount, self.user_namespace, self.home):
            if fd is not None:
                os.close(fd)
