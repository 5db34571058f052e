"""The newest figures of the monitor for Prometheus: read from the step logs when it asks.

This needs the extra `metrics`, unlike most of the monitor.
"""

import socket
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final
from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

from prometheus_client import CollectorRegistry, make_wsgi_app, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from perfkit.capture.hangs.rank_state import OWN_THREAD
from perfkit.capture.monitor.figures import Figure, HostFigures

HOST: Final = "127.0.0.1"
_OWN_NAMES: Final = (HOST, "localhost")
_SUFFIXES: Final = {"s": "_seconds", "By": "_bytes", "1": "_ratio", "{sample}/s": "_per_second"}
"""How Prometheus' names end, by unit; `_total` of counters is added by its client."""


class MetricsServer:
    """Answers Prometheus on loopback, in separate threads, until it is closed.

    Args:
        port: The port.
        folder: The run's folder.
        samples_per_step: Samples of a rank per step; None if unknown.

    Raises:
        OSError: The port cannot be listened on.
    """

    def __init__(self, port: int, folder: Path, samples_per_step: float | None) -> None:
        registry = CollectorRegistry()
        registry.register(StepMetrics(folder, samples_per_step))
        self._server, self._thread = start_http_server(port, HOST, registry)
        self._server.set_app(_for_own_names(make_wsgi_app(registry)))
        self._thread.name = f"{OWN_THREAD}metrics"

    def close(self) -> None:
        """Answer no more."""
        self._server.shutdown()
        with suppress(OSError):  # forked children, such as workers of a loader, have the socket too: it listens no more
            self._server.socket.shutdown(socket.SHUT_RDWR)
        self._server.server_close()
        self._thread.join(timeout=5)


def _for_own_names(application: WSGIApplication) -> WSGIApplication:
    """Let `application` answer only requests for loopback by its name: a web page can point a name of its own at it.

    Any port will do: it may have been forwarded.
    """

    def answer(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        if environ.get("HTTP_HOST", "").partition(":")[0] in _OWN_NAMES:
            return application(environ, start_response)
        start_response("403 Forbidden", [("Content-Type", "text/plain; charset=utf-8")])
        return [f"ask for {HOST} or localhost\n".encode()]

    return answer


class StepMetrics(Collector):
    """The figures of the ranks of this host, in the classes of Prometheus' client.

    Args:
        folder: The run's folder.
        samples_per_step: Samples of a rank per step; None if unknown.
    """

    def __init__(self, folder: Path, samples_per_step: float | None) -> None:
        self._figures = HostFigures(folder, samples_per_step)

    def describe(self) -> list[Metric]:
        """Return nothing: which figures there are shows when they are read."""
        return []

    def collect(self) -> Iterator[Metric]:
        """Read what was logged since the last time, and yield the figures."""
        for figure in self._figures.read():
            yield _metric(figure, self._figures.run)


def _metric(figure: Figure, run: str) -> Metric:
    family = CounterMetricFamily if figure.is_counter else GaugeMetricFamily
    name = f"perfkit_{figure.name}{_SUFFIXES.get(figure.unit, '')}"
    metric = family(name, figure.meaning, labels=("run", "rank"))
    for rank, value in figure.values.items():
        metric.add_metric((run, str(rank)), value)
    return metric
