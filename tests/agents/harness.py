"""A stand-in for a harness: a process of its own that calls hooks with the documented input, and runs what its tools are told."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

AGENTFSD = str(Path(sys.executable).with_name("agentfsd"))

# Reads lines of JSON: {"hook": EVENT, "input": {...}}, {"sh": SCRIPT}, {"begin": COMMAND}; answers each with a line of JSON.
_PROGRAM = """
import json, subprocess, sys
children = []
for line in sys.stdin:
    said = json.loads(line)
    if "begin" in said:
        children.append(subprocess.Popen(said["begin"]))
        print("[]", flush=True)
        continue
    if "sh" in said:
        done = subprocess.run(["sh", "-c", said["sh"]], capture_output=True, text=True)
    else:
        command = f"{sys.argv[1]} hook {said['hook']} {sys.argv[2]}"
        done = subprocess.run(["sh", "-c", command], input=said["input"], capture_output=True, text=True)
    print(json.dumps([done.returncode, done.stdout, done.stderr]), flush=True)
for child in children:
    child.kill()
    child.wait()
"""


class Harness:
    """*dialect*: the value of --for; "" to let the hook find out."""

    def __init__(self, directory: Path, session: str, dialect: str = "claude-code", prefix: tuple[str, ...] = ()) -> None:
        self.session = session
        options = f"--for {dialect}" if dialect else ""
        self._process = subprocess.Popen(
            [*prefix, sys.executable, "-S", "-c", _PROGRAM, AGENTFSD, options], cwd=directory, text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        )  # fmt: skip
        self.directory = directory

    def __enter__(self) -> "Harness":
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.close()
        self._process.stdout.close()
        self._process.wait(30)

    def begin(self, *command: str) -> None:
        """Start a process that lives as long as the harness."""
        self._ask({"begin": command})

    def sh(self, script: str) -> str:
        code, said, complaint = self._ask({"sh": script})
        assert code == 0, complaint
        return str(said)

    def raw(self, event: str, body: str) -> tuple[int, str, str]:
        """Call a hook with any input; return its exit code and what it said."""
        code, said, complaint = self._ask({"hook": event, "input": body})
        return int(code), str(said), str(complaint)

    def hook(self, event: str, **fields: Any) -> dict[str, Any]:
        body = {"session_id": self.session, "cwd": str(self.directory), "transcript_path": None, **fields}
        code, said, complaint = self.raw(event, json.dumps(body))
        assert (code, complaint) == (0, "")
        answer: dict[str, Any] = json.loads(said)
        return answer

    def _ask(self, said: dict[str, Any]) -> list[Any]:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(json.dumps(said) + "\n")
        self._process.stdin.flush()
        answer: list[Any] = json.loads(self._process.stdout.readline())
        return answer
