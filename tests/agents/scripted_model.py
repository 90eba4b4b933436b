"""A model endpoint on the loopback that plays a fixed conversation: Gemini's API, OpenAI's Responses and chat completions.

It answers a prompt with the shell commands that belong to the prompt, one call after the other, and what a tool returned with the
next one, or with a closing sentence. It keeps what it was asked.
"""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

CLOSING = "That is done."
Event = tuple[str, dict[str, Any]]


class ScriptedModel:
    """*script*: the shell commands by a word that only that prompt has."""

    def __init__(self, script: dict[str, list[str]]) -> None:
        self.script, self.asked = script, list[dict[str, Any]]()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05})
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> "ScriptedModel":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def told(self) -> str:
        """All that the client has sent, as text."""
        return json.dumps(self.asked)

    def next_command(self, prompt: str, answers: int) -> str | None:
        """The command for the last prompt after so many answers of tools; None: say the closing sentence."""
        commands = next((commands for word, commands in self.script.items() if word in prompt), [])
        return commands[answers] if answers < len(commands) else None


def _handler(model: ScriptedModel) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: object) -> None:
            pass

        def do_GET(self) -> None:
            self._send(b'{"data": [], "models": []}', "application/json")

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers.get("Content-Length") or 0)) or b"{}")
            model.asked.append(body)
            path = self.path.partition("?")[0]
            if path.endswith("/responses"):
                self._stream(list(_responses(model, body)))
            elif path.endswith("/chat/completions"):
                self._stream(list(_completions(model, body)), done=True)
            elif path.endswith(":streamGenerateContent"):
                self._stream([("", _gemini(model, body))])
            else:
                answer = _gemini(model, body) if path.endswith(":generateContent") else {"totalTokens": 10}
                self._send(json.dumps(answer).encode(), "application/json")

        def _stream(self, events: list[Event], *, done: bool = False) -> None:
            named = ((f"event: {name}\n" if name else "") + f"data: {json.dumps(data)}\n\n" for name, data in events)
            self._send(("".join(named) + "data: [DONE]\n\n" * done).encode(), "text/event-stream")

        def _send(self, body: bytes, kind: str) -> None:
            self.send_response(200)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    return Handler


def _gemini(model: ScriptedModel, body: dict[str, Any]) -> dict[str, Any]:
    prompt, answers = "", 0
    for content in body.get("contents", []):
        texts = [part["text"] for part in content.get("parts", []) if "text" in part]
        if any("functionResponse" in part for part in content.get("parts", [])):
            answers += 1
        elif content.get("role") == "user" and any(word in text for word in model.script for text in texts):
            prompt, answers = " ".join(texts), 0
    command = model.next_command(prompt, answers)
    part: dict[str, Any] = {"text": CLOSING}
    if command is not None:
        part = {"functionCall": {"name": "run_shell_command", "args": {"command": command, "description": "as asked"}}}
    usage = {"promptTokenCount": 10, "candidatesTokenCount": 5, "totalTokenCount": 15}
    return {
        "candidates": [{"content": {"role": "model", "parts": [part]}, "finishReason": "STOP", "index": 0}],
        "usageMetadata": usage,
        "modelVersion": "scripted",
        "responseId": f"r{len(model.asked)}",
    }


def _responses(model: ScriptedModel, body: dict[str, Any]) -> Iterator[Event]:
    prompt, answers = "", 0
    for item in body.get("input", []):
        if item.get("type") == "function_call_output":
            answers += 1
        elif item.get("role") == "user":
            text = json.dumps(item.get("content"))
            if any(word in text for word in model.script):
                prompt, answers = text, 0
    command, number = model.next_command(prompt, answers), len(model.asked)
    yield "response.created", {"type": "response.created", "response": {"id": f"r{number}"}}
    if command is None:
        content = [{"type": "output_text", "text": CLOSING}]
        item = {"type": "message", "role": "assistant", "id": f"m{number}", "content": content}
    else:
        tools = {tool.get("name") for tool in body.get("tools", [])}
        name, arguments = (
            ("exec_command", {"cmd": command}) if "exec_command" in tools else ("shell_command", {"command": command})
        )
        item = {"type": "function_call", "call_id": f"c{number}", "name": name, "arguments": json.dumps(arguments)}
    yield "response.output_item.done", {"type": "response.output_item.done", "item": item}
    usage = {"input_tokens": 1, "output_tokens": 1, "total_tokens": 2}
    yield "response.completed", {"type": "response.completed", "response": {"id": f"r{number}", "usage": usage}}


def _completions(model: ScriptedModel, body: dict[str, Any]) -> Iterator[Event]:
    prompt, answers = "", 0
    for message in body.get("messages", []):
        if message.get("role") == "tool":
            answers += 1
        elif message.get("role") == "user":
            text = json.dumps(message.get("content"))
            if any(word in text for word in model.script):
                prompt, answers = text, 0
    command, number = model.next_command(prompt, answers), len(model.asked)
    if not body.get("tools"):
        command = None  # a title for the session, for one
    delta: dict[str, Any] = {"role": "assistant", "content": CLOSING}
    if command is not None:
        arguments = json.dumps({"command": command, "description": "as asked"})
        call = {"index": 0, "id": f"c{number}", "type": "function", "function": {"name": "bash", "arguments": arguments}}
        delta = {"role": "assistant", "tool_calls": [call]}
    base = {"id": f"r{number}", "object": "chat.completion.chunk", "created": 1, "model": "scripted"}
    yield "", {**base, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]}
    reason = "stop" if command is None else "tool_calls"
    usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
    yield "", {**base, "choices": [{"index": 0, "delta": {}, "finish_reason": reason}], "usage": usage}
