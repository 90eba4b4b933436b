"""One transaction of the state's database, together with the memory that mirrors its rows.

It never knows which tables there are, nor what a row means.
"""

import errno
import sqlite3
from collections.abc import Callable
from types import TracebackType
from typing import Any

from agentfsd.metadata.database import Database


class Transaction:
    """One acknowledged operation: rows and the memory that mirrors them change together or not at all.

    Memory is changed through ``set`` and ``put``, which remember what to put back if the commit fails. Store.transaction() makes
    one.
    """

    __slots__ = ("_as_oserror", "_db", "_forget_ids", "_has_failed", "_regrets", "_undo", "_within")

    def __init__(
        self, db: Database, as_oserror: Callable[[sqlite3.Error], OSError], forget_ids: Callable[[], None],
        within: "Transaction | None" = None,
    ) -> None:  # fmt: skip
        """*within*: the transaction of which this one is a part, if any."""
        self._db, self._as_oserror, self._forget_ids, self._within = db, as_oserror, forget_ids, within
        self._has_failed = False  # a part of it has: it cannot be kept
        self._undo: list[tuple[Any, Any, Any, bool]] = []
        self._regrets: list[Callable[[], object]] = []

    def set(self, target: object, **values: object) -> None:
        """Set attributes of *target*; if the transaction fails, they get their old values back."""
        for key, value in values.items():
            self._undo.append((target, key, getattr(target, key), True))
            setattr(target, key, value)

    def put(self, mapping: dict[Any, Any], key: object, value: object) -> None:
        """Set mapping[key]; None removes it."""
        self._undo.append((mapping, key, mapping.get(key), False))
        if value is None:
            mapping.pop(key, None)
        else:
            mapping[key] = value

    def when_undone(self, work: Callable[[], object]) -> None:
        """Call *work* if the transaction fails, when all rows and memory are as before: what was noted last goes first."""
        self._regrets.append(work)

    def __enter__(self) -> "Transaction":
        if self._within is not None:
            return self
        try:
            self._db.begin()
        except sqlite3.Error as exc:
            raise self._as_oserror(exc) from exc
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, tb: TracebackType | None) -> None:
        if self._within is not None:
            self._end_part(kind, value)
            return
        try:
            if kind is None and self._has_failed:
                raise OSError(errno.EIO, "a part of the transaction has failed")
            if kind is None:
                self._db.keep()
                return
        except sqlite3.Error as exc:
            self._roll_back()
            raise self._as_oserror(exc) from exc
        except OSError:
            self._roll_back()
            raise
        self._roll_back()
        if isinstance(value, sqlite3.Error):
            raise self._as_oserror(value) from value

    def _end_part(self, kind: type[BaseException] | None, value: BaseException | None) -> None:
        """Leave it to the whole transaction to keep or undo what this part has done."""
        assert self._within is not None
        self._within._undo += self._undo  # noqa: SLF001  (our own class)
        self._within._regrets += self._regrets  # noqa: SLF001
        if kind is not None:
            self._within._has_failed = True  # noqa: SLF001
        if isinstance(value, sqlite3.Error):
            raise self._as_oserror(value) from value

    def _roll_back(self) -> None:
        self._db.undo()
        self._forget_ids()  # a block of numbers reserved in here is not reserved any more
        for target, key, old, is_attribute in reversed(self._undo):
            if is_attribute:
                setattr(target, key, old)
            elif old is None:
                target.pop(key, None)
            else:
                target[key] = old
        for work in reversed(self._regrets):
            work()
