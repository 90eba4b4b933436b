"""How often tests repeat what they do: a little by default, ``--long`` for an hour of it, ``--rounds 'NAME=N'`` for one of them.

A module asks for its number while it is imported, so conftest.py passes the options on before anything is collected.
"""

from collections.abc import Iterable

_long = False
_seed = 1
_chosen: dict[str, int] = {}
_known: dict[str, tuple[int, int]] = {}


def configure(long: bool, chosen: Iterable[str], seed: int) -> None:
    """Take the options over.

    Args:
        long: Whether everything runs in its long form.
        chosen: Entries ``NAME=N``, which go before *long*.
        seed: What random tests begin with.

    Raises:
        ValueError: An entry is not ``NAME=N``.
    """
    global _long, _seed
    _long, _seed = long, seed
    for entry in chosen:
        name, equals, number = entry.rpartition("=")
        if not equals or not number.isdigit():
            raise ValueError(f"--rounds {entry!r}: write NAME=N, for example --rounds 'kills of a daemon=300'")
        _chosen[name] = int(number)


def rounds(name: str, short: int, long: int) -> int:
    """Return how often the caller does what *name* says.

    Args:
        name: What is repeated, as ``--rounds`` names it.
        short: The number by default.
        long: The number with ``--long``.
    """
    _known[name] = (short, long)
    return _chosen.get(name, long if _long else short)


def seed() -> int:
    """Return what a random test begins with: ``--seed``, or 1."""
    return _seed


def is_long() -> bool:
    """Whether ``--long`` was given."""
    return _long


def unknown() -> list[str]:
    """Names in ``--rounds`` that no collected module has asked for."""
    return sorted(_chosen.keys() - _known.keys())


def known() -> dict[str, tuple[int, int]]:
    """Name to (by default, with ``--long``), for each collected module."""
    return dict(_known)
