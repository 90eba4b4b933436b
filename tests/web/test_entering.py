"""Who is let in by a running `agentfsd ui`, for whom it starts, and how it ends."""

import os
import signal
import socket
import subprocess
import time
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.mounted import AGENTFSD, Mounted, agentfsd
from tests.web.asking import Visitor, listening
from tests.web.browser import served


def test_nobody_comes_in_without_the_token(address: str) -> None:
    stranger = Visitor(address)
    for path in ("/", "/?token=", "/?token=wrong", "/api/filesystem/tree", "/static/style.css", "/nothing"):
        found = stranger.get(path)
        assert found.status == 403, path
        assert "agent-3" not in found.text
    assert "`agentfsd ui` printed" in stranger.get("/").text
    assert stranger.get("/api/view?path=app.py").json()["hint"]
    stranger.cookie = f"agentfsd-{stranger.address.port}=wrong"
    assert stranger.get("/").status == 403


def test_token_becomes_a_cookie_that_scripts_and_other_sites_do_not_get(address: str) -> None:
    stranger = Visitor(address)
    found = stranger.get(f"/files?ref=agent-3&token={stranger.token}&path=a%ffb")
    assert found.status == 303
    assert found.headers["location"] == "/files?ref=agent-3&path=a%FFb"
    cookie = found.headers["set-cookie"].lower()
    assert "httponly" in cookie
    assert "samesite=lax" in cookie
    assert "domain" not in cookie
    assert stranger.token.lower() not in cookie
    assert stranger.get(f"//evil.example/?token={stranger.token}").headers["location"] == "/evil.example/"
    assert stranger.get("/api/changed?ref=agent-3", {"authorization": f"Bearer {stranger.token}"}).status == 200


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example", "192.168.1.2", "", "localhost@evil.example", "[::1"])
def test_only_a_loopback_name_is_answered(visitor: Visitor, host: str) -> None:
    assert visitor.get("/", {"host": host}).status == 400
    assert visitor.get("/", {"host": f"{visitor.address.hostname}:9"}).status == 200  # by a tunnel of another port


def test_other_servers_of_this_machine_are_not_sent_the_cookie(visitor: Visitor, address: str) -> None:
    stranger = Visitor(address)
    for host in (f"localhost:{visitor.address.port}", f"127.0.0.1:{visitor.address.port}", "[::1]:9"):
        assert (
            visitor.get("/", {"host": host}).status == 403
        )  # where a browser shares cookies with every port, ours is worth nothing
        led = stranger.get(f"/files?token={stranger.token}&path=a%ffb", {"host": host})
        assert "set-cookie" not in led.headers
        home, _, query = led.headers["location"].partition("/files?token=")
        assert home == f"http://{visitor.address.hostname}:{host.rpartition(':')[2]}"
        assert stranger.token not in query
        assert stranger.get(f"/files?token={query}").headers["location"] == "/files?path=a%FFb"
        assert stranger.get(f"/files?token={query}").status == 403  # good once


def test_an_address_of_its_own_may_be_asked_for(mounted: Mounted) -> None:
    with served("-m", str(mounted.path), "--host", "127.0.0.1") as found:
        visitor = Visitor(found)
        assert visitor.address.hostname == "127.0.0.1"
        assert visitor.enter().get("/").status == 200


def test_nobody_else_listens_where_a_browser_may_look_for_its_name(visitor: Visitor) -> None:
    for family, host in ((socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")):
        with socket.socket(family) as other, pytest.raises(OSError):
            other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            other.bind((host, visitor.address.port or 0))
            other.listen()


def test_other_pages_of_the_browser_get_nothing(visitor: Visitor) -> None:
    for site in ("cross-site", "same-site"):
        assert visitor.get("/api/changed?ref=agent-3", {"sec-fetch-site": site, "sec-fetch-mode": "cors"}).status == 403
        assert visitor.get("/", {"sec-fetch-site": site, "sec-fetch-mode": "navigate"}).status == 200
    found = visitor.get("/api/changed?ref=agent-3", {"origin": "http://localhost:9"})
    assert not [name for name in found.headers if name.lower().startswith("access-control")]
    for path in ("/", "/static/style.css", "/api/changed?ref=nobody", "/nothing"):
        headers = visitor.get(path).headers
        assert headers["content-security-policy"].startswith("default-src 'self'; ")
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["cache-control"] == "no-store"
        assert headers["referrer-policy"] == "same-origin"


def test_pages_hold_no_script_and_no_style_of_their_own(visitor: Visitor) -> None:
    for path in ("/", "/compare?a=&b=agent-3", "/files?ref=agent-3", "/history", "/live", "/nothing"):
        text = visitor.get(path).text
        assert "<script>" not in text
        assert " style=" not in text
        assert " on" not in "".join(part.split(">")[0] for part in text.split("<button")[1:])
        assert "http://" not in text.replace("http://www.w3.org/", "")


# -- its start and its end


def test_it_starts_for_the_owner_on_loopback_only(mounted: Mounted) -> None:
    refused = agentfsd("ui", "-m", str(mounted.path), "--host", "0.0.0.0", check=False)
    assert refused.returncode == 1
    assert "not this machine alone" in refused.stderr
    bound = mounted.run("agent-7", *AGENTFSD, "ui", check=False)
    assert bound.returncode == 1
    assert "works in branch agent-7" in bound.stderr
    assert agentfsd("ui", "nowhere.jsonl", check=False).returncode == 1


def test_it_ends_on_a_signal_while_somebody_listens(mounted: Mounted) -> None:
    environment = {**os.environ, "AGENTFS_RUNTIME_DIR": str(mounted.path.parent / "run")}
    for number, code in ((signal.SIGTERM, 0), (signal.SIGINT, 130)):
        command, pipes = [*AGENTFSD, "ui", "-m", str(mounted.path)], {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        with subprocess.Popen(command, env=environment, text=True, **pipes) as process:
            assert process.stdout is not None
            assert process.stderr is not None
            visitor = Visitor(process.stdout.readline().strip()).enter()
            with listening(visitor):
                os.kill(process.pid, number)
                assert process.wait(10) == code
            assert "Traceback" not in process.stderr.read()


def children(pid: int) -> set[str]:
    return {child for path in Path(f"/proc/{pid}/task").glob("*/children") for child in path.read_text().split()}


def test_who_leaves_a_page_leaves_no_work_behind(mounted: Mounted) -> None:
    mounted.cli("branch create", "many")
    mounted.sh("many", "mkdir n; seq 400 | split -l 1 -a 3 - n/")
    environment = {**os.environ, "AGENTFS_RUNTIME_DIR": str(mounted.path.parent / "run")}  # over the socket
    command = [*AGENTFSD, "ui", "-m", str(mounted.path)]
    with subprocess.Popen(command, env=environment, text=True, stdout=subprocess.PIPE) as process:
        daemon = mounted.record().pid
        try:
            assert process.stdout is not None
            visitor, before = Visitor(process.stdout.readline().strip()).enter(), children(daemon)
            with socket.create_connection(("127.0.0.1", visitor.address.port or 0)) as connection:
                head = f"Host: {visitor.address.netloc}\r\nCookie: {visitor.cookie}\r\n"
                connection.sendall(f"GET /api/counts?b=many HTTP/1.1\r\n{head}\r\n".encode())
                deadline = time.monotonic() + 30
                while not children(daemon) - before:
                    assert time.monotonic() < deadline, "nothing is compared"
            os.kill(daemon, signal.SIGSTOP)  # its answer will not come
            os.kill(process.pid, signal.SIGTERM)
            assert process.wait(10) == 0
        finally:
            os.kill(daemon, signal.SIGCONT)
            process.kill()


def test_who_connects_and_asks_nothing_keeps_nobody_out(mounted: Mounted) -> None:
    with served("-m", str(mounted.path)) as address, ExitStack() as strangers:
        visitor = Visitor(address)
        for _ in range(250):
            stranger = strangers.enter_context(socket.create_connection(("127.0.0.1", visitor.address.port or 0)))
            stranger.sendall(b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n")
        assert visitor.enter().get("/").status == 200
        assert visitor.get("/static/style.css").status == 200


def test_download_that_is_broken_off_is_closed(mounted: Mounted) -> None:
    sparse = mounted.subtree("main") / "sparse"
    with sparse.open("wb") as file:
        file.truncate(1 << 30)
    command = [*AGENTFSD, "ui", "-m", str(mounted.path)]
    with subprocess.Popen(command, text=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        try:
            assert process.stdout is not None
            visitor = Visitor(process.stdout.readline().strip()).enter()
            descriptors = Path(f"/proc/{process.pid}/fd")
            before = len(list(descriptors.iterdir()))
            own = f"Host: {visitor.address.netloc}\r\nCookie: {visitor.cookie}\r\n"
            with ExitStack() as open_ones:
                for _ in range(30):
                    connection = socket.create_connection(("127.0.0.1", visitor.address.port or 0))
                    open_ones.enter_context(connection).sendall(
                        f"GET /api/filesystem/file?path=sparse HTTP/1.1\r\n{own}\r\n".encode()
                    )
                time.sleep(0.5)  # until nobody can write on
            deadline = time.monotonic() + 30
            while (left := len(list(descriptors.iterdir())) - before) > 2:
                assert time.monotonic() < deadline, f"{left} descriptors are left"
                time.sleep(0.02)
        finally:
            process.terminate()
            sparse.unlink()
