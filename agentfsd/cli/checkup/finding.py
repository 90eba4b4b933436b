"""What `doctor` found out about one capability of the machine."""

import msgspec


class Finding(msgspec.Struct, frozen=True):
    """One capability of the machine.

    Attributes:
        name: A short name.
        found: The machine has it.
        detail: What the trial showed.
        cost: What its absence costs.
        remedy: A command or setting that mends its absence; "" if there is none.
        needed: Without it, nothing can be mounted.
    """

    name: str
    found: bool
    detail: str
    cost: str
    remedy: str
    needed: bool = False
