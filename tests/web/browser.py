"""A real browser for tests: Chromium without a screen, spoken to through its debugging pipe (the Chrome DevTools Protocol).

What a test can ask of any browser is in Page; Firefox is in firefox.py.
"""

import base64
import fcntl
import json
import os
import select
import shutil
import subprocess
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any

import pytest

from tests.mounted import started

WAIT_S = 10.0
_KEYS = {
    "Enter": (13, "\r"),
    "ArrowDown": (40, ""),
    "ArrowRight": (39, ""),
    "ArrowUp": (38, ""),
    "Home": (36, ""),
    "End": (35, ""),
    "Escape": (27, ""),
    "Tab": (9, ""),
}


def needs_chromium() -> str:
    found = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if found is None:
        pytest.skip("there is no browser: apt-get install chromium")
    return found


class Page(ABC):
    """One page. ``problems``: what the page complained about: exceptions, and refused resources (a violated CSP)."""

    problems: list[str]

    @abstractmethod
    def navigate(self, address: str) -> None: ...

    @abstractmethod
    def run(self, script: str) -> Any:
        """The value of an expression in the page; True for an element."""

    @abstractmethod
    def press(self, key: str) -> None:
        """One key, as from a keyboard."""

    @abstractmethod
    def write(self, text: str) -> None: ...

    @abstractmethod
    def look(self, width: int, height: int, *, dark: bool = False) -> None: ...

    def go(self, address: str) -> None:
        self.run("window.isOld = true")
        self.navigate(address)
        self.until("!window.isOld && document.readyState === 'complete'")

    def until(self, script: str) -> Any:
        """Waits until an expression is true; its value."""
        deadline = time.monotonic() + WAIT_S
        while True:
            try:
                found = self.run(script)
            except AssertionError:  # the page is being left
                found = None
            if found:
                return found
            if time.monotonic() > deadline:
                raise AssertionError(f"this did not become true: {script}\n{self.text()}\n{self.problems}")
            time.sleep(0.02)

    def text(self) -> str:
        found = self.run("document.body.innerText")
        return found if isinstance(found, str) else ""

    def click(self, selector: str) -> None:
        quoted = json.dumps(selector)
        self.until(f"document.querySelector({quoted})")
        self.run(f"void document.querySelector({quoted}).click()")


class Browser(Page):
    """A page of Chromium."""

    def __init__(self, profile: Path) -> None:
        self._in, low_write = os.pipe()
        low_read, self._out = os.pipe()
        its_read, its_write = (fcntl.fcntl(low, fcntl.F_DUPFD, 10) for low in (low_read, low_write))  # 3 and 4 are what it reads
        command = [
            needs_chromium(), "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
            "--disable-extensions", "--disable-background-networking", f"--user-data-dir={profile}", "--remote-debugging-pipe",
            "about:blank",
        ]  # fmt: skip
        script = f'exec "$@" 3<&{its_read} 4>&{its_write} {its_read}<&- {its_write}>&-'
        self._process = subprocess.Popen(
            ["bash", "-c", script, "chromium", *command], pass_fds=[its_read, its_write], stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL, env={**os.environ, "TZ": "UTC", "LANG": "C.UTF-8"}, start_new_session=True,
        )  # fmt: skip
        for ended in (its_read, its_write, low_read, low_write):
            os.close(ended)
        self._buffer, self._number, self._session = b"", 0, ""
        self.problems: list[str] = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            self.call(f"{domain}.enable")
        self.look(1280, 800)

    def __enter__(self) -> "Browser":
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, tb: TracebackType | None) -> None:
        try:
            self._session = ""
            self.call("Browser.close")
        except (EOFError, OSError):
            pass
        finally:
            try:
                self._process.wait(10)
            except subprocess.TimeoutExpired:
                os.killpg(self._process.pid, 9)
                self._process.wait()
            os.close(self._in)
            os.close(self._out)

    def call(self, method: str, **parameters: Any) -> Any:
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._out, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._receive()
            if answer.get("id") == self._number:
                if "error" in answer:
                    raise AssertionError(f"{method}: {answer['error']['message']}")
                return answer["result"]

    def _receive(self) -> dict[str, Any]:
        deadline = time.monotonic() + WAIT_S
        while b"\0" not in self._buffer:
            if not select.select([self._in], [], [], deadline - time.monotonic())[0]:
                raise AssertionError("the browser does not answer")
            part = os.read(self._in, 1 << 20)
            if not part:
                raise EOFError
            self._buffer += part
        first, _, self._buffer = self._buffer.partition(b"\0")
        message: dict[str, Any] = json.loads(first)
        self._note(message.get("method", ""), message.get("params", {}))
        return message

    def _note(self, event: str, parameters: dict[str, Any]) -> None:
        if event == "Runtime.exceptionThrown":
            details = parameters["exceptionDetails"]
            self.problems.append(details.get("exception", {}).get("description") or details["text"])
        elif event == "Log.entryAdded" and parameters["entry"]["level"] == "error":
            self.problems.append(parameters["entry"]["text"] + " " + parameters["entry"].get("url", ""))

    def navigate(self, address: str) -> None:
        self.call("Page.navigate", url=address)

    def run(self, script: str) -> Any:
        expression = f"(async value => (value = await value) instanceof Node ? true : value)({script})"
        done = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in done:
            raise AssertionError(f"{script}: {done['exceptionDetails']}")
        return done["result"].get("value")

    def press(self, key: str) -> None:
        code, text = _KEYS.get(key, (ord(key[0].upper()), key))
        parameters = {"key": key, "windowsVirtualKeyCode": code, "code": key if key in _KEYS else ""}
        self.call("Input.dispatchKeyEvent", type="keyDown" if text else "rawKeyDown", text=text, **parameters)
        self.call("Input.dispatchKeyEvent", type="keyUp", **parameters)

    def write(self, text: str) -> None:
        self.call("Input.insertText", text=text)

    def look(self, width: int, height: int, *, dark: bool = False) -> None:
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        features = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        self.call("Emulation.setEmulatedMedia", features=features)

    def picture(self, path: Path) -> None:
        path.write_bytes(base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"]))


@contextmanager
def served(*arguments: str) -> Iterator[str]:
    """`agentfsd ui` with these arguments; the address that it prints."""
    with started("ui", *arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stderr is not None
        address = process.stdout.readline().strip()
        if not address:
            raise AssertionError(process.stderr.read())
        try:
            yield address
        finally:
            process.terminate()
            process.wait(10)
