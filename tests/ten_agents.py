"""A workspace in which ten agents are done: three of them pass, and two that pass have changed the same line."""

from collections.abc import Callable
from pathlib import Path

from tests.mounted import Mounted

LINES = [f"line {number}" for number in range(1, 61)]
PASSED = (2, 5, 9)
CHANGES = {  # what some of the agents make of the lines of `text`
    2: {5: "five by 2", 25: "twenty-five by 2", 45: "forty-five by 2"}, 5: {25: "twenty-five by 5", 55: "fifty-five by 5"},
}  # fmt: skip


def changed(*changes: dict[int, str]) -> str:
    """Return `text` with some lines replaced."""
    lines = {number: line for number, line in enumerate(LINES, 1)}
    for each in changes:
        lines |= each
    return "".join(f"{line}\n" for line in lines.values())


def ten_agents(make_mount: Callable[..., Mounted], tmp_path: Path) -> Mounted:
    """Mount it. agent-9 comes from the branch team, the others from main."""
    lower = tmp_path / "lower"
    lower.mkdir()
    (lower / "text").write_text(changed())
    found = make_mount(lower)
    found.cli("branch create", "team")
    (found.subtree("team") / "of-team").write_text("team\n")
    for agent in range(1, 11):
        name = f"agent-{agent}"
        found.cli("branch create", name, "--from", "team" if agent == 9 else "main")
        found.run(name, "sh", "-c", f"echo {agent} > of-{agent}; exit {0 if agent in PASSED else agent}", view="pid", check=False)
        if agent in CHANGES:
            (found.subtree(name) / "text").write_text(changed(CHANGES[agent]))
    return found
