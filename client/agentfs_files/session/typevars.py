"""Type variables that need not be given: `Prompt(template)` is a `Prompt[None]` to a type checker. Python has defaults for them
from 3.13 on."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    OutputT = TypeVar("OutputT", default=None)
    ParamsT = TypeVar("ParamsT", default=None)
else:
    from typing import TypeVar

    OutputT = TypeVar("OutputT")
    ParamsT = TypeVar("ParamsT")
