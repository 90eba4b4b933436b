"""Rules about paths outside the workspace, turned into places of a run: what is there now is covered, or made read-only."""

import errno
import glob
import os
from collections.abc import Iterable

from agentfs_client import wire
from agentfs_host.mount_table import is_within
from agentfsd.cli.sandbox.layout import Place
from agentfsd.core.rule_set import PathRule
from agentfsd.domain_errors import Refusal
from agentfsd.linux import home_directory

_MOST = 256  # places; each is a mount


def outside_places(rules: Iterable[wire.RuleInScope], *, reopened: bool) -> list[Place]:
    """Return what rules make of paths outside the workspace that exist now. The last rule that matches a path decides.

    Args:
        rules: All rules of the branch, in order.
        reopened: Exceptions may be written to; else they are read-only.

    Raises:
        Refusal: ``too-many-paths``.
    """
    verbs: dict[str, str] = {}
    for rule in rules:
        if not PathRule(rule.verb, rule.pattern).is_outside:
            continue
        for path in _matching(rule.pattern):
            verbs.pop(path, None)
            verbs[path] = rule.verb
        if len(verbs) > _MOST:
            message = f"rules about paths outside the workspace match more than {_MOST} of them"
            raise Refusal(errno.E2BIG, "too-many-paths", message, "name a directory above them; `agentfsd rules` lists the rules")
    covered = [path for path, verb in verbs.items() if verb in ("hide", "deny")]
    places = []
    for path, verb in verbs.items():
        above = [other for other in covered if other != path and is_within(path, other)]
        if verb == "allow" and above:
            places.append(Place(path, "rw" if reopened else "ro"))
        elif verb == "ro" and not above:
            places.append(Place(path, "ro"))
        elif path in covered and not above:
            places.append(Place(path, "hide"))
    return places


def _matching(pattern: str) -> list[str]:
    """Return the existing paths that a pattern is about; of ``DIRECTORY/**`` the directory, which is covered as a whole."""
    home = home_directory.find()
    if pattern.startswith("~/"):
        if not home:
            return []
        pattern = glob.escape(home) + pattern[1:]
    else:
        pattern = pattern[1:]
    pattern = pattern.rstrip("/")
    while pattern.endswith("/**"):
        pattern = pattern[:-3]
    found = glob.glob(pattern, recursive=True, include_hidden=True)
    return list(dict.fromkeys(path for path in map(os.path.realpath, found) if path not in ("/", home)))
