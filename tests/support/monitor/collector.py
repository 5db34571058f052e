"""A collector of OpenTelemetry on loopback: receives OTLP over HTTP, and decodes it by the protocol's own messages."""

import gzip
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
    ExportMetricsServiceResponse,
)

from tests.support.processes.waiting import MOST_S


class Received(NamedTuple):
    """One request."""

    path: str
    headers: dict[str, str]
    resource: dict[str, Any]
    scope: str
    figures: dict[str, dict[int, float]]
    """By name and rank."""
    units: dict[str, str]
    runs: set[str]
    cumulative: set[str]
    """Names of the figures that are sums which only grow, since the beginning."""


class Collector:
    """What has been received, and how to answer."""

    def __init__(self) -> None:
        self.requests: list[Received] = []
        self.status = 200
        self.port = 0
        self.arrived = threading.Event()

    def wait(self, count: int) -> None:
        """Wait until so many requests have been received.

        Raises:
            TimeoutError: They have not.
        """
        while len(self.requests) < count:
            self.arrived.clear()
            if len(self.requests) < count and not self.arrived.wait(MOST_S):
                raise TimeoutError(f"{len(self.requests)} of {count} requests")


@contextmanager
def collector() -> Iterator[Collector]:
    """Listen until the context is left."""
    state = Collector()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            packed = self.headers.get("Content-Encoding") == "gzip"
            state.requests.append(_decode(self.path, dict(self.headers), gzip.decompress(body) if packed else body))
            state.arrived.set()
            self.send_response(state.status)
            self.send_header("Content-Type", "application/x-protobuf")
            self.end_headers()
            self.wfile.write(ExportMetricsServiceResponse().SerializeToString())

        def log_message(self, *arguments: object) -> None:
            """Print nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        state.port = server.server_address[1]
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield state
        finally:
            server.shutdown()
            thread.join()


def _decode(path: str, headers: dict[str, str], body: bytes) -> Received:
    (of_resource,) = ExportMetricsServiceRequest.FromString(body).resource_metrics
    (of_scope,) = of_resource.scope_metrics
    figures: dict[str, dict[int, float]] = {}
    units, runs, cumulative = {}, set(), set()
    for metric in of_scope.metrics:
        data = metric.sum if metric.HasField("sum") else metric.gauge
        if metric.HasField("sum") and metric.sum.is_monotonic and metric.sum.aggregation_temporality == 2:
            cumulative.add(metric.name)
        units[metric.name] = metric.unit
        for point in data.data_points:
            labels = {one.key: one.value for one in point.attributes}
            assert labels.keys() == {"run", "rank"}
            assert (point.start_time_unix_nano > 0) == (metric.name in cumulative)
            assert point.start_time_unix_nano <= point.time_unix_nano
            runs.add(labels["run"].string_value)
            value = point.as_double if point.HasField("as_double") else float(point.as_int)
            figures.setdefault(metric.name, {})[labels["rank"].int_value] = value
    resource = {one.key: one.value.string_value for one in of_resource.resource.attributes}
    return Received(path, headers, resource, of_scope.scope.name, figures, units, runs, cumulative)
