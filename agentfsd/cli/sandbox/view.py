"""What a command sees of its branch."""

import os
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class View:
    """What the command sees instead of the directories *targets*, in a private namespace: the directory *source*.

    Attributes:
        mount: The descriptor of a detached mount to show instead of *source*. The view owns it.
        user_namespace: The descriptor of a user namespace to enter first; None for none. The view owns it.
        inside: A directory, and the name at which it is mounted inside the detached mount.
    """

    targets: Sequence[str]
    source: str = ""
    mount: int | None = None
    user_namespace: int | None = None
    inside: tuple[str, str] = ("", "")

    def close(self) -> None:
        """Close the descriptors."""
        for fd in (self.mount, self.user_namespace):
            if fd is not None:
                os.close(fd)
