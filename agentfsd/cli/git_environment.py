"""The environment of a git that agentfsd calls. It imports nothing that takes long: a hook uses it at every step."""

import os

_FOREIGN = (  # what git tells its hooks about the repository that runs them
    "GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_COMMON_DIR", "GIT_OBJECT_DIRECTORY", "GIT_ALTERNATE_OBJECT_DIRECTORIES",
    "GIT_PREFIX", "GIT_NAMESPACE",
)  # fmt: skip


def own() -> dict[str, str]:
    """Return this process's environment without what would have git look at another repository than the one it is called for."""
    return {name: value for name, value in os.environ.items() if name not in _FOREIGN}
