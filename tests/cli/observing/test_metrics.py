"""Metrics, as Prometheus asks for them."""

import os
import socket
import stat
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path

import pytest
from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families

from agentfs_host import mount_table
from agentfsd.domain_errors import Refusal
from agentfsd.state import daemon_config
from tests.cli.observing.observed import Shared
from tests.mounted import Mounted, agentfsd

Make = Callable[..., Mounted]


def scrape(address: str) -> dict[str, Metric]:
    """By HTTP, as Prometheus does; over a Unix socket likewise."""
    if address.startswith("unix:"):
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(address.removeprefix("unix:"))
            connection.sendall(b"GET /metrics HTTP/1.0\r\n\r\n")
            body = connection.makefile("rb").read().partition(b"\r\n\r\n")[2]
    else:
        with urllib.request.urlopen(f"http://{address}/metrics", timeout=10) as reply:
            body = reply.read()
    return {family.name: family for family in text_string_to_metric_families(body.decode())}


def value(found: dict[str, Metric], name: str, **labels: str) -> float:
    (sample,) = (one for one in found[name].samples if one.name in (name, f"{name}_total") and one.labels == labels)
    return float(sample.value)


def test_metrics_count_what_happens(branches: Shared) -> None:
    mounted = branches
    address = mounted.json("status")["metrics"]
    (mounted.path / "first").write_bytes(b"1")
    before = scrape(address)
    for number in range(10):
        (mounted.path / f"f{number}").write_bytes(b"12345")
    after = scrape(address)
    write = {"channel": "fuse", "op": "write"}
    assert value(after, "agentfsd_requests", **write) - value(before, "agentfsd_requests", **write) == 10
    assert value(after, "agentfsd_written_bytes") - value(before, "agentfsd_written_bytes") == 50
    assert value(after, "agentfsd_branches") == 3
    assert value(after, "agentfsd_backstore_objects") - value(before, "agentfsd_backstore_objects") == 10
    assert value(after, "agentfsd_requests", channel="control", op="branch.create") >= 2
    assert 0 <= value(after, "agentfsd_loop_lag_seconds") < 10
    times = [one for one in after["agentfsd_request_seconds"].samples if write.items() <= one.labels.items()]
    buckets = [one.value for one in times if one.name.endswith("_bucket")]
    assert buckets == sorted(buckets)
    assert buckets[-1] == next(one.value for one in times if one.name.endswith("_count"))
    assert 0 < next(one.value for one in times if one.name.endswith("_sum")) < 10
    assert all(family.documentation for family in after.values())


@pytest.mark.parametrize(
    ("host", "status"), [("rebound.example", 421), ("10.0.0.1:80", 421), ("[", 421), ("localhost", 200), ("[::1]:1", 200)]
)
def test_metrics_are_for_whoever_asks_this_machine_by_its_own_name(branches: Shared, host: str, status: int) -> None:
    asked = urllib.request.Request(f"http://{branches.json('status')['metrics']}/metrics", headers={"Host": host})
    try:
        with urllib.request.urlopen(asked, timeout=10) as reply:
            assert reply.status == status
    except urllib.error.HTTPError as refused:
        assert refused.code == status
        assert b"agentfsd_" not in refused.read()


def test_metrics_on_a_unix_socket_are_the_owners(make_mount: Make, tmp_path: Path) -> None:
    path = tmp_path / "metrics.sock"
    mounted = make_mount(None, "--metrics", f"unix:{path}")
    assert value(scrape(f"unix:{path}"), "agentfsd_bound_processes") == 0
    assert stat.S_IMODE(path.stat().st_mode) & 0o077 == 0
    mounted.kill()
    mounted.mount()  # over the socket that a killed daemon has left
    assert value(scrape(f"unix:{path}"), "agentfsd_branches") == 1
    agentfsd("umount", str(mounted.path))
    assert not path.exists()


def test_clients_of_metrics_that_ask_for_nothing_take_few_threads(branches: Shared) -> None:
    host, port = branches.json("status")["metrics"].rsplit(":", 1)
    tasks = Path(f"/proc/{branches.record().pid}/task")
    before = len(os.listdir(tasks))
    clients = [socket.create_connection((host, int(port))) for _ in range(100)]
    try:
        assert clients[-1].recv(1) == b""
        assert len(os.listdir(tasks)) < before + 30
    finally:
        for client in clients:
            client.close()
    deadline = time.monotonic() + 30
    while "agentfsd_branches" not in scrape_or_nothing(f"{host}:{port}"):
        assert time.monotonic() < deadline


def scrape_or_nothing(address: str) -> dict[str, Metric]:
    try:
        return scrape(address)
    except OSError:
        return {}


@pytest.mark.parametrize(
    "address", ["0.0.0.0:9100", "[::]:9100", "10.0.0.1:80", "9100", "127.0.0.1:99999", "unix:relative", "x:1"]
)
def test_metrics_where_others_could_reach_them_are_refused(address: str) -> None:
    with pytest.raises(Refusal) as refused:
        daemon_config.parse_address(address)
    assert refused.value.hint.startswith("give unix:/PATH or 127.0.0.1:PORT")


def test_an_address_that_is_taken_leaves_no_mount(tmp_path: Path) -> None:
    for name in ("lower", "mnt"):
        (tmp_path / name).mkdir()
    (tmp_path / "file").write_text("mine")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        for address in (f"127.0.0.1:{taken.getsockname()[1]}", f"unix:{tmp_path}/file"):
            refused = agentfsd("mount", str(tmp_path / "lower"), str(tmp_path / "mnt"), "--metrics", address, check=False)
            assert refused.returncode == 1
            assert f"metrics cannot be served at {address}: Address already in use" in refused.stderr
            assert mount_table.mount_at(str(tmp_path / "mnt")) is None
    assert (tmp_path / "file").read_text() == "mine"
