"""Files that would execute on the user's side are conflicts of a merge or commit, unless the request permits them."""

from collections.abc import Sequence

from agentfsd.control.handler_services import Services
from agentfsd.core import declared_settings
from agentfsd.core.tree import Tree
from agentfsd.history.executed_files import find_executed
from agentfsd.history.merge_records import PathConflict
from agentfsd.history.merging import Objects


def objects_to_executed(services: Services, *, allowed: bool) -> Objects:
    """Return a function that finds these conflicts by the present settings. If *allowed*, it finds none."""
    patterns = declared_settings.read(services.overlay.parts.store)["executed.paths"].split()
    places = (services.info.lower, services.info.mountpoint)

    def conflicts(old: Tree, new: Tree, changed: Sequence[bytes]) -> list[PathConflict]:
        if allowed:
            return []
        return [PathConflict(file.path, "executed", file.why) for file in find_executed(old, new, changed, patterns, places)]

    return conflicts
