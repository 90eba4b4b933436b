"""A written session and its archive, shown by a running `agentfsd ui`, as the specification's debugger has it."""

import json
import re
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from agentfs_client import InMemoryFilesystem, Session, dump_session_tree
from tests.mounted import agentfsd
from tests.web.asking import Visitor
from tests.web.browser import served


@dataclass(frozen=True)
class Note:
    text: str


@dataclass(frozen=True)
class Section:
    filesystem: InMemoryFilesystem


@pytest.fixture
def written(tmp_path: Path) -> Path:
    session = Session(tags={"session_id": "abc123", "agent": "<coder>"})
    session[Note].append(Note("remember </pre><script>alert(1)</script>"))
    files = InMemoryFilesystem({"src/main.py": "print('hello')\n", "README.md": "# Project\n"})
    files.write_bytes("data.bin", b"\0\1")
    path = dump_session_tree(session, tmp_path, filesystem_section=Section(files))
    assert path is not None
    return path


@pytest.fixture(params=[".jsonl", ".fs.zip"])
def visitor(written: Path, request: pytest.FixtureRequest) -> Iterator[Visitor]:
    with served(str(written.with_suffix(request.param))) as address:
        yield Visitor(address).enter()


def test_routes_answer_as_specified(visitor: Visitor, written: Path) -> None:
    with zipfile.ZipFile(written.with_suffix(".fs.zip")) as archive:
        manifest = json.loads(archive.read("manifest.json"))
        names = sorted(name for name in archive.namelist() if name.startswith("files/") and not name.endswith("/"))
        expected = [{"path": name[6:], "size_bytes": archive.getinfo(name).file_size} for name in names]
    meta = visitor.get("/api/filesystem/meta").json()
    assert meta == {name: manifest[name] for name in ("version", "created_at", "file_count", "total_bytes")}
    assert visitor.get("/api/filesystem/tree").json() == expected
    assert visitor.get("/api/filesystem/file?path=src/main.py").text == "print('hello')\n"
    assert visitor.get("/api/filesystem/file?path=none").status == 404
    assert visitor.get("/api/filesystem/file?path=../abc123.jsonl").status == 403
    assert visitor.get("/api/filesystem/tree?path=src").json()["entries"] == [["main.py", "", "f", 15]]
    assert visitor.get("/api/view?path=data.bin").json()["hex"] == [["00000000", "00 01", ".."]]


def test_session_is_shown_without_loading_its_types(visitor: Visitor) -> None:
    text = visitor.get("/").text
    assert "abc123" in text
    assert "Note" in text
    assert "remember &lt;/pre&gt;&lt;script&gt;" in text
    assert "&lt;coder&gt;" in text
    assert "Look at the files" in text
    assert "src" not in visitor.get("/files").text.split('id="files"')[0].split("<body")[1].split("<main")[1]
    assert visitor.get("/compare").status == 404
    assert visitor.post("/", {"csrf": "x"}).status == 403


def test_session_without_files_says_so(tmp_path: Path) -> None:
    session = Session(tags={"session_id": "alone"})
    session[Note].append(Note("no files"))
    path = dump_session_tree(session, tmp_path)
    with served(str(path)) as address:
        visitor = Visitor(address).enter()
        assert "written without a file system" in visitor.get("/").text
        assert "no archive lies beside" in visitor.get("/files").text


def test_other_files_are_refused(tmp_path: Path) -> None:
    other, broken = tmp_path / "a.txt", tmp_path / "b.fs.zip"
    other.write_text("x")
    broken.write_text("no archive")
    for path, words in ((other, "neither a session nor an archive"), (broken, "is refused")):
        refused = agentfsd("ui", str(path), check=False)
        assert refused.returncode == 1
        assert words in refused.stderr
        assert "internal error" not in refused.stderr


def test_broken_lines_are_left_out_and_told_of(written: Path) -> None:
    whole = written.read_text()
    written.write_text(f"{whole}no <json>\n[1]\n")
    with served(str(written)) as address:
        visitor = Visitor(address).enter()
        text = visitor.get("/").text
        assert "remember" in text
        assert "Line 2 is left out: JSON is malformed" in text
        assert "Line 3 is left out: Expected `object`" in text
        written.write_text("[1]\n")
        refused = visitor.get("/")
        assert (refused.status, "is not a session" in refused.text) == (400, True)


def test_lines_that_mean_no_good_leave_the_others_readable(written: Path) -> None:
    deep, long = "[" * 100_000 + "]" * 100_000, json.dumps("x" * 3_000_000)
    nested = json.dumps({"session_id": "nested", "slices": [{"type": "a:Deep", "items": [1]}]})
    items = json.dumps({"session_id": "wide", "slices": [{"type": "a:Wide", "items": ["y" * 150_000] * 150}]})
    written.write_text(
        written.read_text()
        + f'{{"session_id":"s","x":{deep}}}\n'
        + nested.replace("[1]", f"[{'[' * 900}{']' * 900}]") + "\n"
        + f'{{"session_id":"s","slices":[{{"type":"a:Long","items":[{long}]}}]}}\n'
        + items
    )  # fmt: skip
    with served(str(written)) as address:
        found = Visitor(address).enter().get("/")
    assert (found.status, "remember" in found.text) == (200, True)
    assert "Line 2 is left out: maximum recursion depth" in found.text
    assert "(2,900,002 more characters)" in found.text
    assert re.search(r"and \d+ others", found.text)
    assert len(found.body) < 10_000_000
