"""Real harnesses from npm, which talk to a scripted model on the loopback.

They are installed once into a directory that stays (AGENTFSD_TEST_CLIENTS, or one in the directory for temporary files).
"""

import contextlib
import json
import os
import pty
import re
import select
import shutil
import signal
import subprocess
import tempfile
import termios
import time
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

import pytest

from tests import rounds

_INSTALL_S = 240
_PATIENCE_S = 90
_AGAIN_S = 5


def installed(package: str, version: str) -> Path:
    """The directory with an npm package's programs. Skips where npm cannot have it."""
    npm = shutil.which("npm")
    if npm is None:
        pytest.skip("npm is missing")
    base = os.environ.get("AGENTFSD_TEST_CLIENTS") or os.path.join(tempfile.gettempdir(), f"agentfsd-clients-{os.geteuid()}")
    place = Path(base, f"{package.replace('/', '-').lstrip('@')}-{version}")
    if not ((place / "complete").exists() or rounds.is_long()):
        pytest.skip(f"needs --long: npm installs {package} for a minute or more")
    if not (place / "complete").exists():
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir(parents=True)
        (place / "package.json").write_text('{"private": true}')
        command = [npm, "install", "--no-audit", "--no-fund", "--ignore-scripts", "--loglevel=error", f"{package}@{version}"]
        try:
            subprocess.run(command, cwd=place, check=True, capture_output=True, text=True, timeout=_INSTALL_S)
        except subprocess.CalledProcessError as exc:
            pytest.skip(f"npm cannot install {package}: {exc.stderr.strip().splitlines()[-1:]}")
        except subprocess.TimeoutExpired:
            pytest.skip(f"npm has not installed {package} within {_INSTALL_S} s")
        (place / "complete").touch()
    return place / "node_modules"


class Codex:
    """The app server of Codex, which its editors and its terminal use: JSON on standard input and output."""

    def __init__(self, program: Path, home: Path, directory: Path) -> None:
        self.directory = directory
        self._process = subprocess.Popen(
            [program, "app-server"], cwd=directory, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL, env={**os.environ, "HOME": str(home), "SCRIPTED_KEY": "none"},
        )  # fmt: skip
        assert self._process.stdin is not None and self._process.stdout is not None
        self._to: IO[str] = self._process.stdin
        self._from: IO[str] = self._process.stdout
        self._number, self._unread = 0, b""
        self.call("initialize", {"clientInfo": {"name": "test", "version": "1"}, "capabilities": {"experimentalApi": True}})
        self._send({"method": "initialized"})

    def trust_hooks(self) -> int:
        """What a person does in /hooks: trust each. Returns how many there are."""
        (listed,) = self.call("hooks/list", {"cwds": [str(self.directory)]})["data"]
        state = {hook["key"]: {"trusted_hash": hook["currentHash"]} for hook in listed["hooks"]}
        edit = {"keyPath": "hooks.state", "value": state, "mergeStrategy": "upsert"}
        self.call("config/batchWrite", {"edits": [edit], "reloadUserConfig": True})
        return len(state)

    def begin(self) -> str:
        self.thread = str(self.call("thread/start", {"cwd": str(self.directory)})["thread"]["id"])
        return self.thread

    def prompt(self, text: str) -> None:
        """One whole turn."""
        self.call("turn/start", {"threadId": self.thread, "input": [{"type": "text", "text": text}]})
        while self._read().get("method") != "turn/completed":
            pass

    def call(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        self._number += 1
        self._send({"id": self._number, "method": method, "params": params})
        while (said := self._read()).get("id") != self._number:
            pass
        assert "error" not in said, said
        result: dict[str, Any] = said["result"]
        return result

    def _send(self, message: dict[str, Any]) -> None:
        self._to.write(json.dumps(message) + "\n")
        self._to.flush()

    def _read(self) -> dict[str, Any]:
        while b"\n" not in self._unread:
            assert select.select([self._from], [], [], _PATIENCE_S)[0], "Codex says nothing"
            part = os.read(self._from.fileno(), 65536)
            assert part, "Codex has ended"
            self._unread += part
        line, _, self._unread = self._unread.partition(b"\n")
        said: dict[str, Any] = json.loads(line)
        return said

    def end(self) -> None:
        self._to.close()
        try:
            self._process.wait(20)
        finally:
            self._process.kill()
            self._process.wait()
            self._from.close()


class Terminal:
    """A program on a terminal of its own, to which a person types."""

    def __init__(self, command: list[str], directory: Path, environment: dict[str, str]) -> None:
        self._main, side = pty.openpty()
        termios.tcsetwinsize(side, (40, 120))
        self._process = subprocess.Popen(
            command, cwd=directory, stdin=side, stdout=side, stderr=side, start_new_session=True,
            env={**os.environ, "TERM": "xterm-256color", **environment},
        )  # fmt: skip
        os.close(side)
        self.shown = ""

    def wait_for(self, pattern: str) -> None:
        """Wait until the screen has shown something since the last key."""
        deadline = time.monotonic() + _PATIENCE_S
        while not re.search(pattern, self.shown):
            assert time.monotonic() < deadline, f"{pattern} is not shown: {self.shown[-2000:]}"
            self.look(0.1)

    def look(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while (left := deadline - time.monotonic()) > 0:
            if select.select([self._main], [], [], left)[0]:
                try:
                    self.shown += re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", os.read(self._main, 65536).decode("utf-8", "replace"))
                except OSError:
                    return

    def type(self, text: str, is_sent: Callable[[], bool]) -> None:
        """Type a line, as fast as a person, as what comes at once counts as pasted; again, if it got lost in a redrawn screen."""
        self.shown = ""
        deadline = time.monotonic() + _PATIENCE_S
        while not is_sent():
            assert time.monotonic() < deadline, f"{text} is not sent: {self.shown[-2000:]}"
            for key in f"\x15{text}":  # Ctrl-U: an empty line
                os.write(self._main, key.encode())
                self.look(0.01)
            self.look(0.3)
            os.write(self._main, b"\r")
            again = time.monotonic() + _AGAIN_S
            while not is_sent() and time.monotonic() < again:
                self.look(0.1)

    def end(self) -> None:
        """End the program, and what it has started: Gemini CLI starts itself once more."""
        for number in (signal.SIGTERM, signal.SIGKILL):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, number)
            deadline = time.monotonic() + 5
            while self._process.poll() is None and time.monotonic() < deadline:
                self.look(0.1)
        self._process.wait()
        os.close(self._main)
