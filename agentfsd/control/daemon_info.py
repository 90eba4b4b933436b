"""What a daemon says of itself."""

from dataclasses import dataclass, field


@dataclass
class DaemonInfo:
    """What the status of a daemon consists of, apart from its branches. ``shown_at``: the paths at which processes see the root;
    ``read_only``: nothing is to be written to files."""

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
    metrics: str = ""
