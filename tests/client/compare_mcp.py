"""Makes the same calls to `agentfsd mcp`'s server and to MCP's reference file system server, and lists where the answers differ.

    npm install --prefix /tmp/reference @modelcontextprotocol/server-filesystem
    python -m tests.client.compare_mcp /tmp/reference [--all]

Both serve equal directories. An answer counts as equal if both succeed with the same text, or both refuse. The reasons for what
differs are in client/README.md. With --all, each differing call is shown with both answers, not only three of a kind.
"""

import json
import os
import re
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

_SERVER = "node_modules/@modelcontextprotocol/server-filesystem/dist/index.js"
_OURS = "import sys; from agentfs_files import HostFilesystem; from agentfs_files.integrations.mcp.server import run; "
_OURS += "run(HostFilesystem(sys.argv[1]))"
_STAMP = re.compile(r"\w{3} \w{3} \d\d \d{4} [\d:]+ GMT\+0000 \([^)]*\)|\d{4}-\d\d-\d\dT[\d:.]+Z?")
_END_S = 20


class Call(NamedTuple):
    tool: str
    arguments: dict[str, Any]


class Answer(NamedTuple):
    is_error: bool
    text: str


class Server:
    """A server on standard input and output."""

    def __init__(self, root: Path, command: list[str]) -> None:
        self._root, self._number = str(root), 0
        self._process = subprocess.Popen(
            [*command, self._root], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, cwd=root
        )
        about = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "compare", "version": "1"}}
        self._ask("initialize", about)
        self._send({"jsonrpc": "2.0", "method": "notifications/initialized"})
        self.tools = {tool["name"] for tool in self._ask("tools/list", {})["result"]["tools"]}

    def call(self, call: Call) -> Answer:
        """Make a call. A protocol error counts as a refusal."""
        given = json.loads(json.dumps(call.arguments).replace("ROOT", self._root))
        reply = self._ask("tools/call", {"name": call.tool, "arguments": given})
        if "error" in reply:
            return Answer(True, f"protocol error: {reply['error']['message']}")
        result = reply["result"]
        parts = [part.get("text") or part.get("data", "") for part in result["content"]]
        return Answer(bool(result.get("isError")), self._plain("\n".join(parts)))

    def _plain(self, text: str) -> str:
        return _STAMP.sub("TIME", text.replace(os.path.realpath(self._root), "ROOT").replace(self._root, "ROOT"))

    def _ask(self, method: str, parameters: dict[str, Any]) -> dict[str, Any]:
        self._number += 1
        self._send({"jsonrpc": "2.0", "id": self._number, "method": method, "params": parameters})
        assert self._process.stdout is not None
        for line in self._process.stdout:
            message: dict[str, Any] = json.loads(line)
            if message.get("id") == self._number and "method" not in message:
                return message
            if "method" in message and "id" in message:  # a question of the server, such as for the roots
                self._send({"jsonrpc": "2.0", "id": message["id"], "error": {"code": -32601, "message": "not here"}})
        raise AssertionError(f"the server has ended at {method} {parameters}")

    def _send(self, message: dict[str, Any]) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(message) + "\n")
        self._process.stdin.flush()

    def close(self) -> None:
        """Close standard input, at which the server ends."""
        self._process.communicate(timeout=_END_S)


def fill(root: Path) -> None:
    """Make a small workspace with odd files in it."""
    for path in ("src/app.py", "src/deep/er/x.ts", "docs/read me.md", "docs/ü.md", "node_modules/p/index.js", "build/out.js"):
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(f"first of {path}\nsecond\n  third\nlast line of it\n")
    (root / "empty").mkdir()
    (root / "empty.txt").touch()
    (root / "no end").write_text("one\ntwo")
    (root / "crlf.txt").write_bytes(b"one\r\ntwo\r\nthree\r\n")
    (root / "binary.bin").write_bytes(bytes(range(256)))
    (root / "dot.png").write_bytes(bytes.fromhex("89504e470d0a1a0a") + b"\0" * 20)
    (root / ".hidden").write_text("h\n")
    (root / "link.py").symlink_to("src/app.py")
    (root / "out").symlink_to("/etc")
    (root / "dangling").symlink_to("missing")
    for path in sorted(root.rglob("*")):
        if not path.is_symlink():
            os.utime(path, (1_700_000_000, 1_700_000_000))


_PLACES = (
    "src/app.py", "src", "src/", "./src/app.py", "src/../src/app.py", "src//app.py", "", ".", "missing", "missing/x",
    "src/app.py/x", "empty", "empty.txt", "no end", "crlf.txt", "binary.bin", "dot.png",
    ".hidden", "link.py", "out", "out/passwd", "dangling",
    "docs/read me.md", "docs/ü.md", "docs/u\u0308.md", "../other", "/etc/passwd", "n" * 100, "a/" * 20 + "x", "n" * 300, "~/x",
)  # fmt: skip
_PATTERNS = (
    "*", "**", "**/*", "*.py", "**/*.py", "app", "**/app*", "*.{py,ts}", "**/*.{py,ts}", "src/**", "**/deep/**", "[a-d]*",
    "?mpty*",
    "!*.py", "**/!(app)*", "**/*.md", "**/ü*", "missing*", "", "**/.hidden", "*/", "@(src|docs)",
)  # fmt: skip


def calls() -> Iterator[Call]:
    """Yield every call: those that only look first, then those that change something."""
    yield from _looking()
    yield from _wrong()
    yield from _changing()


def _looking() -> Iterator[Call]:
    for place in _PLACES:
        path = place if place.startswith(("/", "~")) else f"ROOT/{place}"
        for tool in ("read_text_file", "read_file", "read_media_file", "list_directory", "directory_tree", "get_file_info"):
            yield Call(tool, {"path": path})
        yield Call("list_directory_with_sizes", {"path": path})
        yield Call("list_directory_with_sizes", {"path": path, "sortBy": "size"})
        for lines in ({"head": 1}, {"tail": 1}, {"head": 100}, {"head": 1, "tail": 1}, {"head": 0}):
            yield Call("read_text_file", {"path": path, **lines})
        yield Call("read_multiple_files", {"paths": [path, "ROOT/src/app.py"]})
    for pattern in _PATTERNS:
        yield Call("search_files", {"path": "ROOT", "pattern": pattern})
        yield Call("search_files", {"path": "ROOT/src", "pattern": pattern})
        yield Call("search_files", {"path": "ROOT", "pattern": "**/*", "excludePatterns": [pattern]})
        yield Call("directory_tree", {"path": "ROOT", "excludePatterns": [pattern]})
    yield Call("read_multiple_files", {"paths": []})
    yield Call("list_allowed_directories", {})


def _wrong() -> Iterator[Call]:
    yield Call("no_such_tool", {})
    for tool in ("read_text_file", "write_file", "edit_file", "search_files", "move_file", "list_directory_with_sizes"):
        yield Call(tool, {})
        yield Call(tool, {"path": 5})
        yield Call(tool, {"path": None})
    yield Call("read_text_file", {"path": "ROOT/src/app.py", "more": 1})
    yield Call("read_text_file", {"path": "ROOT/src/app.py", "head": "1"})
    yield Call("list_directory_with_sizes", {"path": "ROOT", "sortBy": "colour"})
    yield Call("read_text_file", {"path": "ROOT/src\0/app.py"})


def _changing() -> Iterator[Call]:
    edits: list[list[dict[str, str]]] = [
        [{"oldText": "second", "newText": "2nd"}], [{"oldText": "  third\n", "newText": ""}],
        [{"oldText": "not there", "newText": "x"}],
        [{"oldText": "third", "newText": "3\n4"}, {"oldText": "3\n4", "newText": "5"}], [{"oldText": "", "newText": "x"}], [],
        [{"oldText": "one\ntwo", "newText": "1\n2"}], [{"oldText": "third\nlast", "newText": "x\ny"}],
    ]  # fmt: skip
    for place in ("src/app.py", "crlf.txt", "no end", "link.py", "missing", "src", "out/passwd", "docs/u\u0308.md"):
        for edit in edits:
            yield Call("edit_file", {"path": f"ROOT/{place}", "edits": edit, "dryRun": True})
        yield Call("edit_file", {"path": f"ROOT/{place}", "edits": edits[0]})
        yield Call("read_text_file", {"path": f"ROOT/{place}"})
    ends = ("n" * 100, "n" * 300)
    for place in ("new.txt", "src/app.py", "made/up/x", "empty", "link.py", "dangling", "out/x", "../x", "", *ends):
        yield Call("write_file", {"path": f"ROOT/{place}", "content": "héllo\n"})
        yield Call("read_text_file", {"path": f"ROOT/{place}"})
    for place in ("d1", "d1", "d2/d3/d4", "src/app.py", "src/app.py/x", "out/x", "../x", "", "n" * 300, "b/" * 30):
        yield Call("create_directory", {"path": f"ROOT/{place}"})
        yield Call("get_file_info", {"path": f"ROOT/{place}"})
    for old, new in (
        ("new.txt", "moved.txt"), ("missing", "x"), ("moved.txt", "src/app.py"), ("d1", "d2/d1"), ("d2", "d2/in"), ("src", "dst"),
        ("dst", "missing/dst"), ("link.py", "link2"), ("out", "out2"), ("empty", "empty.txt"), ("moved.txt", "../x"),
        ("crlf.txt", "CRLF.txt"),
    ):  # fmt: skip
        yield Call("move_file", {"source": f"ROOT/{old}", "destination": f"ROOT/{new}"})
    yield Call("directory_tree", {"path": "ROOT"})


def kind(ours: Answer, theirs: Answer) -> str:
    """Name the kind of a difference; "" if there is none."""
    if ours.is_error != theirs.is_error:
        return "only we refuse" if ours.is_error else "only the reference refuses"
    return "" if ours.is_error or ours.text == theirs.text else "another text"


def compare(reference: Path) -> dict[str, list[tuple[Call, Answer, Answer]]]:
    """Make all calls, and return them by kind of difference."""
    found: dict[str, list[tuple[Call, Answer, Answer]]] = defaultdict(list)
    with tempfile.TemporaryDirectory() as base:
        roots = [Path(base, name) / "root" for name in ("ours", "theirs")]
        for root in roots:
            root.mkdir(parents=True)
            fill(root)
        ours = Server(roots[0], [sys.executable, "-c", _OURS])
        theirs = Server(roots[1], ["node", str(reference / _SERVER)])
        for call in calls():
            answers = ours.call(call), theirs.call(call)
            found[kind(*answers)].append((call, *answers))
        ours.close()
        theirs.close()
    return found


def main() -> None:
    """Compare, and print."""
    found = compare(Path(sys.argv[1]))
    everything = "--all" in sys.argv
    print(f"{sum(map(len, found.values()))} calls, {len(found.pop('', []))} alike")
    for what, those in sorted(found.items()):
        print(f"\n{what}: {len(those)}")
        by_tool: dict[str, list[tuple[Call, Answer, Answer]]] = defaultdict(list)
        for each in those:
            by_tool[each[0].tool].append(each)
        for tool, some in sorted(by_tool.items()):
            print(f"  {tool}: {len(some)}")
            for call, ours, theirs in some if everything else some[:3]:
                print(f"    {json.dumps(call.arguments)[:200]}")
                print(f"      ours:   {ours.text[:300]!r}\n      theirs: {theirs.text[:300]!r}")


if __name__ == "__main__":
    main()
