"""The time by which snapshots grow old without anybody asking: a clock that is wrong for once must not delete them for good.

A clock that leaps ahead is believed when a daemon has run by it for a day. Until then time goes on from the last time that was
believed, which the state directory keeps: the clock may have been wrong already when the daemon was started. A computer that was
switched off for weeks looks the same, and keeps its old snapshots for a day longer.
"""

import time

from agentfsd.metadata.row_store import Store

_KEY = "time that was believed"
_HOUR_NS = 3600 * 10**9
_LEAP_NS = 7 * 24 * _HOUR_NS
_BELIEVED_AFTER_NS = 24 * _HOUR_NS


class DoubtedClock:
    """A clock of one state directory, from when the daemon was started.

    Args:
        store: Where the time is kept that was believed last.
        newest_ns: When the newest snapshot was taken, for a state that has kept none; 0: there is none.
    """

    def __init__(self, store: Store, newest_ns: int) -> None:
        self._store, self._newest_ns = store, newest_ns
        self._believed_ns = 0  # the time that was believed last; 0: not by this daemon
        self._believed_at_ns = _uptime_ns()  # when the clock was last believed, by the time since the computer was started
        self._leapt_at_ns: int | None = None  # likewise, when it was first seen to be far ahead

    def now_ns(self) -> int:
        """Return the time in ns since 1970, as far as it is believed."""
        now_ns, uptime_ns = time.time_ns(), _uptime_ns()
        believed_ns = self._believed_ns or int(self._store.value(_KEY) or 0) or self._newest_ns or now_ns
        if now_ns - believed_ns - (uptime_ns - self._believed_at_ns) > _LEAP_NS:
            if self._leapt_at_ns is None:
                self._leapt_at_ns = uptime_ns
            if uptime_ns - self._leapt_at_ns < _BELIEVED_AFTER_NS:
                return min(now_ns, believed_ns + uptime_ns - self._believed_at_ns)
        self._leapt_at_ns, self._believed_at_ns = None, uptime_ns
        self._believed_ns = now_ns
        if abs(now_ns - int(self._store.value(_KEY) or 0)) > _HOUR_NS:
            with self._store.transaction():
                self._store.put_value(_KEY, str(now_ns))
        return now_ns


def _uptime_ns() -> int:
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME)
