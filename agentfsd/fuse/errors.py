"""The one place where exceptions become errno values for the kernel."""

import errno
import functools
import logging
import sqlite3
from collections.abc import Awaitable, Callable
from typing import ParamSpec, TypeVar

from pyfuse3 import FUSEError

log = logging.getLogger(__name__)

_P = ParamSpec("_P")
_T = TypeVar("_T")


def translated(handler: Callable[_P, Awaitable[_T]]) -> Callable[_P, Awaitable[_T]]:
    """Wraps a request handler: OSError gives its errno; anything unforeseen is logged and gives EIO."""

    @functools.wraps(handler)
    async def call(*args: _P.args, **kwargs: _P.kwargs) -> _T:
        try:
            return await handler(*args, **kwargs)
        except OSError as exc:
            raise FUSEError(exc.errno or errno.EIO) from None
        except FUSEError:
            raise
        except sqlite3.Error as exc:
            log.error("%s: the metadata database failed: %s; `agentfsd fsck` says more", handler.__name__, exc)
            raise FUSEError(errno.EIO) from None
        except MemoryError:
            raise FUSEError(errno.ENOMEM) from None
        except Exception as exc:
            log.exception("%s failed", handler.__name__)
            raise FUSEError(errno.EIO) from exc

    return call
