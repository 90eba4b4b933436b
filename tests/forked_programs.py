"""Runs a program in a fork of a process that has imported it, to an end like that of Python, but without freeing its memory.

To free it would copy what the forks share, which takes longer than most commands.
"""

import atexit
import os
import runpy
import signal
import sys
import threading
from typing import NoReturn


def run(module: str) -> NoReturn:
    """Do what `python -m` does, and end the process."""
    code = 1
    try:
        runpy.run_module(module, run_name="__main__", alter_sys=True)
        code = 0
    except SystemExit as exc:
        code = _code_of(exc)
    except KeyboardInterrupt:
        sys.excepthook(*sys.exc_info())
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
    except BaseException:  # noqa: BLE001 - no more can be done about it
        sys.excepthook(*sys.exc_info())
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    os._exit(code if _flushed() else 120)


def _code_of(exc: SystemExit) -> int:
    if exc.code is None or isinstance(exc.code, int):
        return exc.code or 0
    print(exc.code, file=sys.stderr)
    return 1


def _flushed() -> bool:
    is_well = True
    for stream in (sys.stdout, sys.stderr):
        try:
            if stream is not None and not stream.closed:
                stream.flush()
        except OSError as exc:
            is_well = stream is sys.stderr and is_well
            if stream is sys.stdout:
                print(f"Exception ignored: {exc!r}", file=sys.stderr)
    return is_well
