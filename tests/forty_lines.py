"""A text of forty lines, of which tests change some."""

LINES = [f"line {number}\n" for number in range(1, 41)]


def changed(**lines: str) -> str:
    """The text with some of its lines replaced: by number, as in l3="three"."""
    wanted = {int(name[1:]): text for name, text in lines.items()}
    return "".join(wanted.get(number, line) for number, line in enumerate(LINES, 1))
