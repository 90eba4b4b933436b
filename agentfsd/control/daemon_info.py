"""The facts about a daemon that its status shows."""

from dataclasses import dataclass, field


@dataclass
class DaemonInfo:
    """What the status of a daemon shows apart from its branches.

    Attributes:
        session: "native" or "pyfuse3".
        owner_uid: The user to whom the mount belongs.
        shown_at: The paths at which processes see the root.
        read_only: No file may be changed.
        restarts: Why no daemon is started in the place of this one if it is killed; "" if one is.
        succeeds: How many daemons served this mount before, and were killed or replaced.
        metrics: The address at which metrics are served; "" for none.
    """

    version: str
    pid: int
    lower: str
    mountpoint: str
    state: str
    session: str
    backstore: str
    started_ns: int
    owner_uid: int
    capabilities: dict[str, str] = field(default_factory=dict)
    shown_at: tuple[str, ...] = ()
    read_only: bool = False
    restarts: str = ""
    succeeds: int = 0
    metrics: str = ""
