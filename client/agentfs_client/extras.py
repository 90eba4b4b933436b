"""Explain a missing optional package: name the extra of this distribution that installs it."""

from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def needed_for(feature: str, extra: str) -> Iterator[None]:
    """Wrap the imports that a feature needs.

    Args:
        feature: subject and verb of the message, such as ``containers need``.
        extra: name of the extra.

    Raises:
        ModuleNotFoundError: an import failed; the message says what to install.
    """
    try:
        yield
    except ModuleNotFoundError as exc:
        raise ModuleNotFoundError(f"{feature} the package `{exc.name}`: pip install 'agentfsd[{extra}]'", name=exc.name) from exc
