"""Every Python example of the two READMEs runs as it stands there, on a real mount, a real directory and a real container."""

import re
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.containers import IMAGE, podman_service
from tests.mounted import Mounted

ROOT = Path(__file__).parents[2]


def _examples() -> dict[str, str]:
    """Code by the heading above it, and a number."""
    found: dict[str, str] = {}
    heading = ""
    text = "".join((ROOT / name).read_text() for name in ("README.md", "client/README.md"))
    for part in re.finditer(r"^#+ (?P<heading>[^\n]*)$|^```python\n(?P<code>.*?)^```$", text, re.MULTILINE | re.DOTALL):
        if part["code"] is None:
            heading = part["heading"]
        else:
            found[f"{heading} {len(found) + 1}"] = part["code"]
    return found


EXAMPLES = _examples()


@pytest.mark.parametrize("title", EXAMPLES)
def test_example(title: str, tmp_path: Path, make_mount: Callable[..., Mounted], monkeypatch: pytest.MonkeyPatch) -> None:
    code = EXAMPLES[title]
    for name in ("project/src", "scratch"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "project" / "src" / "main.py").write_text("print('hello')\n")
    monkeypatch.chdir(tmp_path)
    if "/home/me/work" in code:
        code = code.replace("/home/me/work", str(make_mount(tmp_path / "project").path))
    code = code.replace("/home/me", str(tmp_path))
    frameworks = [name for name in MODELS if re.search(rf"^from {name}\b", code, re.MULTILINE)]
    if frameworks:
        pytest.importorskip(frameworks[0], reason=f"{frameworks[0]} is not installed, an extra that takes long to install")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # what their packages say of each other
            run_example(code, model=MODELS[frameworks[0]]())
        return
    if "Podman" not in code:
        run_example(code)
        return
    with podman_service() as service, service.client() as client:
        container = service.run(client)
        run_example(code, container=container, image=IMAGE, uri=service.uri)


def _agents_model() -> Any:
    from agents import set_tracing_disabled
    from agents.testing import ScriptedModel, assistant_message, function_call

    set_tracing_disabled(True)
    command = {"cmd": "sed -i s/hello/bye/ src/main.py && cat src/main.py", "login": False, "yield_time_ms": 60_000}
    return ScriptedModel([[function_call("exec_command", command, call_id="1")], [assistant_message("done")]])


def _pydantic_ai_model() -> Any:
    from pydantic_ai.models.test import TestModel

    return TestModel(custom_output_text="done")


def _openhands_model() -> Any:
    from openhands.sdk.llm import Message, TextContent
    from openhands.sdk.testing import TestLLM

    return TestLLM.from_messages([Message(role="assistant", content=[TextContent(text="done")])])


def _minisweagent_model() -> Any:
    from minisweagent.models.test_models import DeterministicModel, make_output

    commands = ["sed -i s/hello/bye/ src/main.py", "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT; cat src/main.py"]
    return DeterministicModel(outputs=[make_output("Next.", [{"command": command}], 0.0) for command in commands])


MODELS: dict[str, Callable[[], Any]] = {  # scripted ones, by the package of the framework
    "agents": _agents_model, "pydantic_ai": _pydantic_ai_model, "openhands.sdk": _openhands_model,
    "minisweagent.agents": _minisweagent_model,
}  # fmt: skip


def run_example(code: str, **names: object) -> dict[str, Any]:
    """The names that it leaves behind."""
    left: dict[str, Any] = {"__name__": "example", **names}
    exec(compile(code, "README.md", "exec"), left)
    return left
