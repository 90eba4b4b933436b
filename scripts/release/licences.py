"""Licences of Python packages; prints the copyright file of the Debian package, with those of all packages that it holds.

`licences.py LICENSE SITE-PACKAGES`. A package under the GPL without an exception ends it: what we import into one process must
not be that.
"""

import re
import sys
from collections.abc import Iterator
from importlib.metadata import Distribution, distributions
from pathlib import Path

_FREE_TO_LINK = re.compile(r"LGPL|Lesser|linking exception", re.I)
_GPL = re.compile(r"\bA?GPL|General Public License", re.I)


def licence(found: Distribution) -> str:
    """As the package says it: an SPDX expression, a few words, or classifiers."""
    said = found.metadata
    words = str((said.get_all("License-Expression") or said.get_all("License") or [""])[0])
    if words and "\n" not in words:
        return words
    kinds = [kind.rpartition(" :: ")[2] for kind in said.get_all("Classifier") or [] if kind.startswith("License ::")]
    return ", ".join(kinds)


def forbids_linking(words: str) -> bool:
    return not words or (_GPL.search(words) is not None and _FREE_TO_LINK.search(words) is None)


def texts(found: Distribution) -> Iterator[str]:
    for path in found.files or []:
        if re.match(r"(licen[cs]e|copying|notice)", path.name, re.I) and ".dist-info" in str(path):
            yield Path(str(found.locate_file(path))).read_text(errors="replace").strip()


def copyright_file(own: str, site: str) -> Iterator[str]:
    """Its lines. *own*: our licence; *site*: the directory that the packages are installed in."""
    yield own
    yield "The Python packages below /usr/lib/agentfsd are other people's:\n"
    held = sorted(distributions(path=[site]), key=lambda found: found.name.lower())
    for found in held:
        if forbids_linking(licence(found)):
            raise SystemExit(f"the licence of {found.name} does not permit this: {licence(found) or 'unknown'}")
        yield f"{found.name} {found.version}: {licence(found)}"
    for found in held:
        for text in texts(found):
            yield f"\n{'-' * 30} {found.name}\n\n{text}"


if __name__ == "__main__":
    sys.stdout.writelines(f"{line}\n" for line in copyright_file(Path(sys.argv[1]).read_text(), sys.argv[2]))
