"""Format the daemon's log as JSON, one object a line, for programs that read it."""

import json
import logging
import time

from agentfsd.escape import printable as printable
from agentfsd.process.journald import Formatter

_FIELDS = ("branch", "pid", "op", "duration")  # that a record may have besides, by logging's ``extra``; duration in seconds


class JsonFormatter(Formatter):
    """Format a record as one JSON object. ``time`` is UTC, to the millisecond."""

    def format(self, record: logging.LogRecord) -> str:
        clock = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        fields: dict[str, object] = {
            "time": f"{clock}.{int(record.msecs):03d}Z", "level": record.levelname, "logger": record.name,
            "message": record.getMessage(),
        }  # fmt: skip
        fields |= {name: value for name in _FIELDS if (value := getattr(record, name, None)) not in (None, "")}
        if record.exc_info and record.exc_info[0] is not None:
            fields["traceback"] = self.formatException(record.exc_info)
        return json.dumps(fields)
