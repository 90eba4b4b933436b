"""What type checkers read: the names of `__init__.py`, and those of the file-system library."""

from agentfs_files import *  # noqa: F403 - the stub passes all of its names on

from .async_control import AsyncControlClient as AsyncControlClient
from .control import ControlClient as ControlClient
from .descriptor_operations import OpenedFd as OpenedFd
from .errors import AgentFSError as AgentFSError
from .errors import DaemonGoneError as DaemonGoneError
from .errors import NotAllowedError as NotAllowedError
from .errors import NotForwardedError as NotForwardedError
from .errors import NotFoundError as NotFoundError
from .opening import open as open
