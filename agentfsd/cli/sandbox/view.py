"""What a command sees of its branch."""

import os
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class View:
    """What the command sees instead of the directories *targets*, in a private namespace: the directory *source*.

    Attributes:
        mount: The descriptor of a detached mount to show instead of *source*. The view owns its descriptors.
        user_namespace: The descriptor of a user namespace to enter first; None for none.
        inside: A directory, and the name at which it is mounted inside the detached mount.
        home: The descriptor of a mount for the home directory, if the plan has a place for it.
        home_why: The reason why there is no such mount.
    """

    targets: Sequence[str]
    source: str = ""
    mount: int | None = None
    user_namespace: int | None = None
    inside: tuple[str, str] = ("", "")
    home: int | None = None
    home_why: str = ""

    def close(self) -> None:
        """Close the descriptors."""
        for fd in (self.mount, self.user_namespace, self.home):
            if fd is not None:
                os.close(fd)
