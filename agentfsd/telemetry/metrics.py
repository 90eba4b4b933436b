"""The daemon's counters in Prometheus' text format, served over HTTP by threads of their own. Imported only when asked for.

The counters belong to the event loop. At each scrape it takes a snapshot of them, and these threads read only that snapshot.
"""

import contextlib
import errno
import ipaddress
import logging
import os
import socket
import socketserver
import stat
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import trio
from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, InfoMetricFamily, Metric
from prometheus_client.exposition import MetricsHandler

from agentfsd.domain_errors import Refusal
from agentfsd.state.daemon_config import Address

log = logging.getLogger(__name__)

_SHORTEST, _LONGEST = 13, 35  # the classes of times that are told apart: 2^13 ns, 8 us, to 2^35 ns, 34 s
_SCRAPES_MAX = 16  # at a time
_GONE_S = 10.0  # a client that sends nothing for so long is disconnected


class RequestMetrics(NamedTuple):
    """The numbers of one operation. See request_counters.OperationCounter."""

    channel: str
    op: str
    classes: tuple[int, ...]
    total_ns: int
    errors: int


class MetricsSnapshot(NamedTuple):
    """The counts until now. ``gauges`` and ``counters``: (value, help) by name, without the prefix "agentfsd_"."""

    version: str
    requests: list[RequestMetrics]
    counters: dict[str, tuple[float, str]]
    gauges: dict[str, tuple[float, str]]


class _Collector:
    """What prometheus_client calls at each scrape. *usage* walks the backstore, in the scrape's thread."""

    def __init__(
        self, picture: Callable[[], MetricsSnapshot], usage: Callable[[], dict[str, int]], token: trio.lowlevel.TrioToken
    ) -> None:
        self._picture, self._usage, self._token = picture, usage, token

    def describe(self) -> Iterable[Metric]:
        """Return nothing: prometheus_client calls this at registration, before there are numbers."""
        return []

    def collect(self) -> Iterable[Metric]:
        usage = self._usage()
        snapshot: MetricsSnapshot = trio.from_thread.run_sync(self._picture, trio_token=self._token)
        yield InfoMetricFamily("agentfsd_build", "The daemon that serves this.", {"version": snapshot.version})
        yield from _requests(snapshot.requests)
        for name, (value, words) in snapshot.counters.items():
            yield CounterMetricFamily(f"agentfsd_{name}", words, value)
        for name, (value, words) in snapshot.gauges.items():
            yield GaugeMetricFamily(f"agentfsd_{name}", words, value)
        yield GaugeMetricFamily("agentfsd_backstore_bytes", "Allocated for contents of changed files.", usage["bytes"])
        yield GaugeMetricFamily("agentfsd_backstore_objects", "Contents of changed files.", usage["objects"])


def _requests(tallies: list[RequestMetrics]) -> Iterator[Metric]:
    labels = ["channel", "op"]
    count = CounterMetricFamily(
        "agentfsd_requests", "Requests answered, by channel (fuse, control) and operation.", labels=labels
    )
    errors = CounterMetricFamily(
        "agentfsd_request_errors", "Requests answered with an error, including ENOENT and the like.", labels=labels
    )
    times = HistogramMetricFamily("agentfsd_request_seconds", "From a request's arrival to its answer.", labels=labels)
    for tally in tallies:
        where = [tally.channel, tally.op]
        total = sum(tally.classes)
        count.add_metric(where, total)
        errors.add_metric(where, tally.errors)
        times.add_metric(where, [*_buckets(tally.classes), ("+Inf", total)], tally.total_ns / 1e9)
    yield from (count, errors, times)


def _buckets(classes: tuple[int, ...]) -> Iterator[tuple[str, int]]:
    """Cumulative: class n holds what took less than 2^n ns."""
    so_far = sum(classes[:_SHORTEST])
    for number in range(_SHORTEST, _LONGEST + 1):
        so_far += classes[number]
        yield repr(2**number / 1e9), so_far


class _Server(socketserver.ThreadingMixIn, socketserver.TCPServer):
    daemon_threads = True
    allow_reuse_address = True
    request_queue_size = 128  # a client beyond that tries again only after a second, then after three

    def __init__(self, *arguments: Any) -> None:
        self._free = threading.Semaphore(_SCRAPES_MAX)
        super().__init__(*arguments)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Refuse a client when all threads are in use: the daemon needs threads of its own."""
        if self._free.acquire(blocking=False):
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._free.release()

    def handle_error(self, request: object, client_address: object) -> None:
        log.debug("metrics could not be served", exc_info=True)


class _UnixServer(_Server):
    address_family = socket.AF_UNIX
    allow_reuse_address = False


class _Server6(_Server):
    address_family = socket.AF_INET6


class _LoopbackHandler(MetricsHandler):
    """Refuse a request to another host name than this machine's. A page of a browser here could otherwise read the counters: its
    name may be made to lead to 127.0.0.1. Clients that are no browsers may leave the name out.
    """

    def do_GET(self) -> None:  # noqa: N802 - the name of http.server
        if is_own_name(self.headers.get("Host", "localhost")):
            super().do_GET()
        else:
            self.send_error(421, "Ask for 127.0.0.1 or localhost")


def is_own_name(host: str) -> bool:
    """Return whether the Host header of a request names this machine: localhost, or an address of the loopback."""
    try:
        name = urlsplit(f"//{host}").hostname or ""
        return name == "localhost" or ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


class MetricsServer:
    """Serve metrics until close(). Refusal when the address cannot be used."""

    def __init__(
        self,
        address: Address,
        picture: Callable[[], MetricsSnapshot],
        usage: Callable[[], dict[str, int]],
        token: trio.lowlevel.TrioToken,
    ) -> None:
        registry = CollectorRegistry()
        registry.register(_Collector(picture, usage, token))
        asked = MetricsHandler if address.path else _LoopbackHandler
        handler = type("_Handler", (asked,), {"registry": registry, "timeout": _GONE_S})
        self._path = address.path
        try:
            if address.path:
                _remove_left(address.path)
                self._server: _Server = _UnixServer(address.path, handler)
            else:
                kind = _Server6 if ":" in address.host else _Server
                self._server = kind((address.host, address.port), handler)
        except OSError as exc:
            raise _refused(address, exc) from exc
        self._thread = threading.Thread(target=self._server.serve_forever, name="agentfsd-metrics", daemon=True)
        self._thread.start()

    @property
    def port(self) -> int:
        """The port of a TCP address; 0 for a Unix socket."""
        return 0 if self._path else int(self._server.server_address[1])

    def close(self) -> None:
        """Stop serving. The thread is not joined, which would take half a second; it ends with the process."""
        if self._path:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self._path)


def _refused(address: Address, exc: OSError) -> Refusal:
    """*exc* has no number when the path of a socket is too long for one."""
    why, hint = exc.strerror or str(exc), "give another address, or end what is there"
    if exc.errno == errno.EAFNOSUPPORT:
        why = "this process may use no network"
        hint = (
            "give unix:/PATH, or permit it with `systemctl edit` of the unit: below [Service] the lines "
            "RestrictAddressFamilies=AF_INET AF_INET6 and IPAddressAllow=localhost"
        )
    elif address.path and exc.errno != errno.EADDRINUSE:
        hint = "give a path of at most 107 bytes in a directory that is there, such as unix:/run/agentfsd/metrics.sock"
    return Refusal(exc.errno or errno.EINVAL, "no-metrics", f"metrics cannot be served at {address}: {why}", hint)


def _remove_left(path: str) -> None:
    """Remove the socket of a daemon that was killed. Any other file stays, and so does a socket that is being served."""
    try:
        if not stat.S_ISSOCK(os.lstat(path).st_mode):
            return
        with socket.socket(socket.AF_UNIX) as probe:
            probe.connect(path)
    except FileNotFoundError:
        return
    except ConnectionRefusedError:
        os.unlink(path)
