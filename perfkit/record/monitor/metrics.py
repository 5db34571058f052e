"""The newest figures of the monitor for Prometheus: read from the step logs when it asks.

This needs the extra `metrics`, unlike most of the monitor.
"""

import socket
import threading
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from socketserver import ThreadingMixIn
from typing import Any, Final
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server
from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

from prometheus_client import CollectorRegistry, make_wsgi_app
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from perfkit.record.monitor.figures import HostFigures
from perfkit.record.own_threads import start_own_thread

HOST: Final = "127.0.0.1"
_OWN_NAMES: Final = (HOST, "localhost")
_MOST_CONNECTIONS: Final = 16
"""At a time; the others are closed."""
_SILENCE_S: Final = 10
_SUFFIXES: Final = {"s": "_seconds", "By": "_bytes", "1": "_ratio", "{sample}/s": "_per_second"}
"""How Prometheus' names end, by unit; `_total` of counters is added by its client."""


class MetricsServer:
    """Answers Prometheus on loopback, in separate threads, until it is closed.

    Without `prometheus_client.start_http_server`, which answers under any name until it has returned.

    Raises:
        OSError: The port cannot be listened on.
        RuntimeError: No thread can be started.
    """

    def __init__(self, port: int, folder: Path, samples_per_step: float | None) -> None:
        registry = CollectorRegistry()
        registry.register(StepMetrics(folder, samples_per_step))
        application = _for_own_names(make_wsgi_app(registry))
        self._server = make_server(HOST, port, application, _Server, _QuietHandler)
        try:
            self._thread = start_own_thread("metrics", self._server.serve_forever)
        except RuntimeError:  # no more threads
            self._server.server_close()
            raise

    def close(self) -> None:
        self._server.shutdown()
        with suppress(OSError):  # forked children, such as workers of a loader, have the socket too: it listens no more
            self._server.socket.shutdown(socket.SHUT_RDWR)
        self._server.server_close()
        self._thread.join(timeout=5)


class _Server(ThreadingMixIn, WSGIServer):
    """Answers each request in a thread that the end of the process does not wait for.

    Anybody on the machine can connect, and the threads and descriptors are the program's: it must not run out of them.
    """

    def __init__(self, *args: Any) -> None:
        self._free = threading.BoundedSemaphore(_MOST_CONNECTIONS)
        super().__init__(*args)

    def process_request(self, request: Any, client_address: Any) -> None:
        if not self._free.acquire(blocking=False):
            self.shutdown_request(request)
            return
        try:
            start_own_thread("request", self.process_request_thread, request, client_address)
        except RuntimeError:  # no more threads
            self._free.release()
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._free.release()

    def handle_error(self, _request: Any, _client_address: Any) -> None:
        """Write nothing: stderr is the program's."""


class _QuietHandler(WSGIRequestHandler):
    """Writes nothing to stderr, which is the program's."""

    timeout = _SILENCE_S

    def handle(self) -> None:
        """Answer; a client that disconnects is not an error."""
        with suppress(ConnectionError):
            super().handle()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  as the base class names it
        """Write nothing."""


def _for_own_names(application: WSGIApplication) -> WSGIApplication:
    """Let `application` answer only requests for loopback by its name: a web page can point its own name at it.

    Any port will do: it may have been forwarded.
    """

    def answer(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        if environ.get("HTTP_HOST", "").partition(":")[0].lower() in _OWN_NAMES:
            return application(environ, start_response)
        start_response("403 Forbidden", [("Content-Type", "text/plain; charset=utf-8")])
        return [f"ask for {HOST} or localhost\n".encode()]

    return answer


class StepMetrics(Collector):
    """The figures of the ranks of this host, in the classes of Prometheus' client."""

    def __init__(self, folder: Path, samples_per_step: float | None) -> None:
        self._figures = HostFigures(folder, samples_per_step)

    def describe(self) -> list[Metric]:
        """Return nothing: which figures there are shows when they are read."""
        return []

    def collect(self) -> Iterator[Metric]:
        for figure in self._figures.read():
            family = CounterMetricFamily if figure.is_counter else GaugeMetricFamily
            name = f"perfkit_{figure.name}{_SUFFIXES.get(figure.unit, '')}"
            metric = family(name, figure.meaning, labels=("run", "rank"))
            for rank, value in figure.values.items():
                metric.add_metric((self._figures.run, str(rank)), value)
            yield metric
