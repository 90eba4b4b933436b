"""How an interactive shell shows in its prompt in which branch it stands."""

import os
from collections.abc import Mapping

_BASHRC = os.path.join(os.path.dirname(__file__), "branch_prompt.bash")
_FISH = "functions -c fish_prompt _agentfsd_prompt; function fish_prompt; printf '(%s) ' $AGENTFS_BRANCH; _agentfsd_prompt; end"
_BY_VARIABLE = ("sh", "dash", "ash", "ksh", "mksh")


def marked(program: str, branch: str, environment: Mapping[str, str]) -> tuple[list[str], dict[str, str]]:
    """Return the command line of a shell whose prompt begins with the branch, and the variables that it needs.

    bash reads its own settings first. A shell that is not known here starts as it is; AGENTFS_BRANCH is there for its settings.
    """
    name = os.path.basename(program)
    if name == "bash":
        return [program, "--rcfile", _BASHRC], {}
    if name == "fish":
        return [program, "-C", _FISH], {}
    if name in _BY_VARIABLE:
        sign = "# " if os.geteuid() == 0 else "$ "
        return [program], {"PS1": f"({branch}) {environment.get('PS1', sign)}"}
    return [program], {}
