"""JSON by the parts of Python's json that are written in C. json itself imports re, which takes as long as an answer does.

What is unusual is left to json: text that is no JSON, so that the error says where, and a Python that has other parts.
"""

from _collections_abc import Callable

TYPE_CHECKING = False  # typing takes as long to load as an answer does; checkers know the name
if TYPE_CHECKING:
    from typing import Any

_SPACE = " \t\n\r"
_CONSTANTS = {"-Infinity": float("-inf"), "Infinity": float("inf"), "NaN": float("nan")}


class _Rules:
    """What a scanner is told: as json.JSONDecoder has it."""

    strict = True
    object_pairs_hook = array_hook = None
    parse_float, parse_int, parse_constant = float, int, _CONSTANTS.__getitem__

    def __init__(self, object_hook: "Callable[[dict[str, Any]], Any] | None") -> None:
        self.object_hook = object_hook


def loads(body: bytes, object_hook: "Callable[[dict[str, Any]], Any] | None" = None) -> "Any":
    """Read JSON, as json.loads() does.

    Args:
        body: The JSON, in UTF-8.
        object_hook: Makes something else of each object.

    Raises:
        ValueError: It is no JSON.
    """
    try:
        import _json

        rules: Any = _Rules(object_hook)
        text = body.decode("utf-8", "surrogatepass").strip(_SPACE)
        value, end = _json.make_scanner(rules)(text, 0)
        if end == len(text):
            return value
    except (ImportError, ValueError, StopIteration, TypeError, AttributeError, SystemError):
        pass  # up to Python 3.12 a scanner that finds an error, and no json to tell it, makes that a SystemError
    import json

    return json.loads(body, object_hook=object_hook)


def dumps(value: object, *, sort_keys: bool = False) -> str:
    """Write JSON in one line of ASCII, as json.dumps() does.

    Args:
        value: What json.dumps() takes.
        sort_keys: The keys of objects are sorted.

    Raises:
        TypeError: A value cannot be written.
        ValueError: A value holds itself.
    """
    try:
        import _json

        encode = _json.make_encoder({}, _refuse, _json.encode_basestring_ascii, None, ": ", ", ", sort_keys, False, True)
        return "".join(encode(value, 0))
    except (ImportError, TypeError, AttributeError):
        pass
    import json

    return json.dumps(value, sort_keys=sort_keys)


def _refuse(value: object) -> object:
    raise TypeError(f"{type(value).__name__} is no JSON")
