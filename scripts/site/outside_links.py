"""A hook of mkdocs: links that lead out of docs/ become plain text, because the site does not hold those files."""

import os
import re
from typing import Any

_LINK = re.compile(r"\[([^\]]+)\]\((\.\./[^)#]+)(?:#[^)]*)?\)")


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Rewrite one page before it is rendered."""
    directory = os.path.dirname(page.file.src_uri)

    def replaced(link: re.Match[str]) -> str:
        target = os.path.normpath(os.path.join(directory, link[2]))
        return f"{link[1]} (`{target.lstrip('./')}` in the checkout)" if target.startswith("..") else link[0]

    return _LINK.sub(replaced, markdown)
