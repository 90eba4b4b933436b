"""Runs the work of git in a thread while the daemon answers other requests."""

import threading
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import Future
from typing import TypeVar

_T = TypeVar("_T")

_WAIT_S = 0.005  # as long as a slice of the event loop: others wait no longer for it


def aside(work: Callable[[], _T], meanwhile: Iterator[object] | None = None) -> Generator[tuple[int, int, str], None, _T]:
    """Run *work* in a thread. Yields progress, as core/tree_diff.py does, so that other requests are answered meanwhile.

    *meanwhile*: steps of other work of this request. As many of them are run here as there is time for.
    """
    future: Future[_T] = Future()

    def run() -> None:
        try:
            future.set_result(work())
        except BaseException as exc:  # noqa: BLE001 - raised again where the result is waited for
            future.set_exception(exc)

    threading.Thread(target=run, name="git", daemon=True).start()
    while True:
        while meanwhile is not None and not future.done() and next(meanwhile, None) is not None:
            yield 0, 0, "git"
        try:
            return future.result(timeout=_WAIT_S)
        except TimeoutError:
            if future.done():  # it has ended just now, perhaps with such an exception of its own
                return future.result()
        yield 0, 0, "git"
