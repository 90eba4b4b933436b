"""Words that somebody else has chosen, as people are shown them: on one line, and nothing in them that a terminal obeys."""

_LETTERS = {0x07: "a", 0x08: "b", 0x09: "t", 0x0A: "n", 0x0B: "v", 0x0C: "f", 0x0D: "r", 0x22: '"', 0x5C: "\\"}


def printable(text: str) -> str:
    """Control characters and stray bytes are escaped; twice is the same as once."""
    return text if text.isprintable() else "".join(char if char.isprintable() else repr(char)[1:-1] for char in text)


def quoted(path: bytes) -> str:
    """A path as git shows it with core.quotePath=false: as it is, or in double quotes with C's escapes where that could be
    misread. Bytes that are no UTF-8, and characters that cannot be printed, are escaped in octal."""
    text = path.decode("utf-8", "surrogateescape")
    if text.isprintable() and not {'"', "\\"} & set(text):
        return text
    return f'"{"".join(map(_quoted, text))}"'


def _quoted(char: str) -> str:
    number = ord(char)
    if number in _LETTERS:
        return f"\\{_LETTERS[number]}"
    if char.isprintable():
        return char
    return "".join(f"\\{byte:03o}" for byte in char.encode("utf-8", "surrogateescape"))
