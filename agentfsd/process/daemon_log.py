"""Choose where a daemon's log goes, and its format and level. This module knows nothing of overlays."""

import logging
import logging.handlers
import os

from agentfsd.domain_errors import invalid
from agentfsd.process import journald, json_log
from agentfsd.state import state_directory
from agentfsd.state.daemon_config import DaemonConfig

LOG_BYTES = 4 << 20
LEVELS = ("debug", "info", "warning", "error")


def start_log(config: DaemonConfig, state: state_directory.StateDirectory) -> None:
    """Start logging to the journal, the terminal, or STATE/daemon.log."""
    logging.basicConfig(level=_level(os.environ.get("AGENTFS_LOG", "INFO")), handlers=[_handler(config, state)])


def _level(name: str) -> str:
    if name.lower() not in LEVELS:
        raise invalid(f"AGENTFS_LOG={name} is not a log level", f"give one of {', '.join(LEVELS)}")
    return name.upper()


def _handler(config: DaemonConfig, state: state_directory.StateDirectory) -> logging.Handler:
    if config.foreground and journald.listens(2):
        return journald.handler({"AGENTFS_MOUNT": config.mountpoint, "AGENTFS_LOWER": config.lower, "AGENTFS_STATE": state.path})
    handler = (
        logging.StreamHandler() if config.foreground
        else logging.handlers.RotatingFileHandler(state.log, maxBytes=LOG_BYTES, backupCount=1)
    )  # fmt: skip
    text = journald.OneLine("%(asctime)s %(levelname)s %(name)s: %(message)s")
    handler.setFormatter(json_log.JsonFormatter() if config.log_format == "json" else text)
    return handler
