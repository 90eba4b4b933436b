"""Packages that not everybody needs: an import that fails says which extra of this distribution brings what is missing."""

from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def needed_for(what: str, extra: str) -> Iterator[None]:
    """Around the imports that *what* needs, such as ``containers need``. ModuleNotFoundError, with what to install."""
    try:
        yield
    except ModuleNotFoundError as exc:
        raise ModuleNotFoundError(f"{what} the package `{exc.name}`: pip install 'agentfsd[{extra}]'", name=exc.name) from exc
