"""Firefox without a screen, spoken to as the standard WebDriver BiDi says, which it offers without another program."""

import json
import re
import shutil
import subprocess
import threading
from pathlib import Path
from types import TracebackType
from typing import Any

import pytest
from websockets.sync.client import connect

from tests.web.browser import WAIT_S, Page

_START_S = 60.0
_KEYS = {"Enter": "\ue007", "Escape": "\ue00c", "ArrowDown": "\ue015", "ArrowUp": "\ue013", "Tab": "\ue004"}
_SETTINGS = {
    "browser.shell.checkDefaultBrowser": False, "datareporting.policy.dataSubmissionEnabled": False, "app.update.enabled": False,
    "network.captive-portal-service.enabled": False, "network.connectivity-service.enabled": False,
    "focusmanager.testmode": True,  # or its window has no focus, and Enter presses no button
}  # fmt: skip


def needs_firefox() -> str:
    found = shutil.which("firefox-esr") or shutil.which("firefox")
    if found is None:
        pytest.skip("there is no Firefox: apt-get install firefox-esr")
    return found


class Firefox(Page):
    """A page of Firefox."""

    def __init__(self, profile: Path) -> None:
        lines = [f"user_pref({json.dumps(name)}, {json.dumps(value)});" for name, value in _SETTINGS.items()]
        (profile / "user.js").write_text("\n".join(lines))
        command = [
            needs_firefox(),
            "--headless",
            "--no-remote",
            "--profile",
            str(profile),
            "--remote-debugging-port",
            "0",
            "about:blank",
        ]
        self._process = subprocess.Popen(
            command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, start_new_session=True
        )
        self.problems: list[str] = []
        self._number = 0
        try:
            self._socket = connect(f"{self._address()}/session", max_size=None, open_timeout=_START_S)
            self.call("session.new", capabilities={})
            self._context = self.call("browsingContext.create", type="tab")["context"]
            self.call("browsingContext.activate", context=self._context)
            self.call("session.subscribe", events=["log.entryAdded", "network.responseCompleted"])
        except BaseException:
            self._end()
            raise
        self.look(1280, 800)

    def _address(self) -> str:
        assert self._process.stderr is not None
        timer = threading.Timer(_START_S, self._process.kill)
        timer.start()
        try:
            for line in self._process.stderr:
                if found := re.search(r"ws://\S+", line):
                    threading.Thread(target=self._process.stderr.read, daemon=True).start()  # or it would wait for us
                    return found[0].rstrip("/")
        finally:
            timer.cancel()
        raise AssertionError("Firefox has not started")

    def __enter__(self) -> "Firefox":
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, tb: TracebackType | None) -> None:
        try:
            self.call("browser.close")
            self._socket.close()
        finally:
            self._end()

    def _end(self) -> None:
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        if self._process.stderr is not None:
            self._process.stderr.close()

    def call(self, method: str, **parameters: Any) -> Any:
        self._number += 1
        self._socket.send(json.dumps({"id": self._number, "method": method, "params": parameters}))
        while True:
            answer = json.loads(self._socket.recv(WAIT_S + 20))
            if answer.get("id") == self._number:
                assert answer["type"] == "success", f"{method}: {answer}"
                return answer["result"]
            self._note(answer)

    def _note(self, event: dict[str, Any]) -> None:
        parameters = event.get("params", {})
        if event.get("method") == "log.entryAdded" and parameters["level"] == "error":
            self.problems.append(parameters["text"])
        elif event.get("method") == "network.responseCompleted" and parameters["response"]["status"] >= 400:
            self.problems.append(f"{parameters['response']['status']} {parameters['request']['url']}")

    def navigate(self, address: str) -> None:
        self.call("browsingContext.navigate", context=self._context, url=address, wait="none")

    def run(self, script: str) -> Any:
        value = f"(async value => (value = await value) instanceof Node ? true : value)({script})"
        expression = f"(async () => JSON.stringify({{ value: await {value} }}))()"
        done = self.call("script.evaluate", expression=expression, target={"context": self._context}, awaitPromise=True)
        assert done["type"] == "success", f"{script}: {done}"
        return json.loads(done["result"]["value"]).get("value")

    def press(self, key: str) -> None:
        pressed = _KEYS.get(key, key)
        self._act([{"type": "keyDown", "value": pressed}, {"type": "keyUp", "value": pressed}])

    def write(self, text: str) -> None:
        typed = [_KEYS["Enter"] if char == "\n" else char for char in text]
        self._act([{"type": kind, "value": char} for char in typed for kind in ("keyDown", "keyUp")])

    def _act(self, actions: list[dict[str, str]]) -> None:
        keyboard = {"type": "key", "id": "keyboard", "actions": actions}
        self.call("input.performActions", context=self._context, actions=[keyboard])

    def look(self, width: int, height: int, *, dark: bool = False) -> None:
        assert not dark, "not needed yet"
        self.call("browsingContext.setViewport", context=self._context, viewport={"width": width, "height": height})
