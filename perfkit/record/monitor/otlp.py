"""The newest figures of the monitor for OpenTelemetry: sent to a collector at intervals, by OTLP over HTTP.

This needs the extra `otel`, unlike most of the monitor. Nothing of the program's own OpenTelemetry is touched: there is
no meter provider, and the exporter is one of its own. The SDK's periodic reader would go on in forked children, such as
the workers of a loader.
"""

import logging
import os
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from opentelemetry.context import _SUPPRESS_INSTRUMENTATION_KEY, attach, set_value
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.sdk.metrics.export import (
    AggregationTemporality,
    Gauge,
    Metric,
    MetricExportResult,
    MetricsData,
    NumberDataPoint,
    ResourceMetrics,
    ScopeMetrics,
    Sum,
)
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.util.instrumentation import InstrumentationScope

from perfkit._version import __version__
from perfkit.errors import UsageError
from perfkit.record.messages import one_line, print_warning
from perfkit.record.monitor.figures import Figure, HostFigures
from perfkit.record.own_threads import start_own_thread

_INTERVAL: Final = "OTEL_METRIC_EXPORT_INTERVAL"
_DEFAULT_INTERVAL_MS: Final = 60_000.0
_PROTOCOLS: Final = ("OTEL_EXPORTER_OTLP_METRICS_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
_HTTP: Final = "http/protobuf"
_AT_END_S: Final = 2.0
"""How long the end of a run waits for the last figures to be sent."""
_LONGEST_REASON: Final = 200


class OtlpSender:
    """Sends the figures of this host's ranks in a separate thread, until it is closed, and then once more.

    Where to, how often, and with which headers, certificates, compression and resource attributes: the environment
    (`OTEL_*`), and what it leaves open is the exporter's default.

    Raises:
        UsageError, ValueError: A variable has a value that cannot be used: one of perfkit's own reading, or the
            exporter's.
    """

    def __init__(self, folder: Path, samples_per_step: float | None, environment: Mapping[str, str]) -> None:
        _refuse_other_protocols(environment)
        self._interval_s = _interval_s(environment)
        self._figures = HostFigures(folder, samples_per_step)
        self._resource = Resource({"service.name": "perfkit", "host.name": self._figures.host}).merge(
            OTELResourceDetector().detect()  # what the environment has wins
        )
        self._began_ns = time.time_ns()
        self._exporter = OTLPMetricExporter()
        self._messages = _OwnMessages()
        self._stopped = threading.Event()
        self._has_failed = False
        self._thread = start_own_thread("otlp", self._run)

    def close(self) -> None:
        """Send the last figures, and stop; a collector that does not answer is not waited for."""
        self._stopped.set()
        self._thread.join(timeout=_AT_END_S)
        self._exporter.shutdown()  # ends its repetitions, too
        self._thread.join(timeout=_AT_END_S)
        if self._thread.is_alive():
            self._report_failure("no answer")

    def _run(self) -> None:
        # A program that traces its requests does not trace these.
        attach(set_value(_SUPPRESS_INSTRUMENTATION_KEY, True))
        logger = logging.getLogger(OTLPMetricExporter.__module__)
        self._messages.thread = threading.get_ident()
        logger.addFilter(self._messages)
        try:
            while not self._stopped.wait(self._interval_s):
                self._send()
            if not self._has_failed:
                self._send()
        except Exception as error:  # noqa: BLE001  the outermost boundary of this thread, which is inside a program
            print_warning(f"--otlp: no more figures for OpenTelemetry: {one_line(error)}")
        finally:
            logger.removeFilter(self._messages)

    def _send(self) -> None:
        figures = self._figures.read()
        if not figures:
            return
        self._messages.first = None
        now_ns = time.time_ns()
        metrics = [self._metric(figure, now_ns) for figure in figures]
        scope = ScopeMetrics(InstrumentationScope("perfkit", __version__), metrics, "")
        sent = self._export(MetricsData([ResourceMetrics(self._resource, [scope], "")]))
        if sent:
            self._has_failed = False
        else:
            self._report_failure(self._messages.first or "refused")

    def _report_failure(self, reason: str) -> None:
        """Print that figures were not delivered, if that is not known yet."""
        if self._has_failed:
            return
        self._has_failed = True
        why = f"{getattr(self._exporter, '_endpoint', 'the collector')}: {reason}"
        again = "" if self._stopped.is_set() else f"; tried again every {self._interval_s:g} s"
        print_warning(f"--otlp: no figures for OpenTelemetry: {why}{again}")

    def _export(self, data: MetricsData) -> bool:
        try:
            return self._exporter.export(data) is MetricExportResult.SUCCESS
        except OSError as error:  # of `requests`: older exporters let it pass
            self._messages.first = _system_reason(error) or one_line(error)[:_LONGEST_REASON]
            return False

    def _metric(self, figure: Figure, now_ns: int) -> Metric:
        points = [
            NumberDataPoint({"run": self._figures.run, "rank": rank}, self._began_ns, now_ns, value)
            for rank, value in figure.values.items()
        ]
        data = Sum(points, AggregationTemporality.CUMULATIVE, True) if figure.is_counter else Gauge(points)
        return Metric(f"perfkit.{figure.name}", figure.meaning, figure.unit, data)


class _OwnMessages(logging.Filter):
    """Keeps the first message of the exporter in the sender's thread, and lets none of them into the program's log."""

    def __init__(self) -> None:
        super().__init__()
        self.thread = 0
        self.first: str | None = None

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether a record is for the program."""
        if record.thread != self.thread:
            return True
        if self.first is None and record.levelno >= logging.WARNING:
            self.first = _reason(record)
        return False


def _reason(record: logging.LogRecord) -> str:
    """Return what the system says of a failed connection, otherwise the whole message."""
    for argument in record.args if isinstance(record.args, tuple) else ():
        if isinstance(argument, BaseException) and (reason := _system_reason(argument)) is not None:
            return reason
    return " ".join(record.getMessage().split())[:_LONGEST_REASON]


def _system_reason(error: BaseException) -> str | None:
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, OSError) and cause.strerror:
            return cause.strerror
        cause = cause.__cause__ or cause.__context__
    return None


def _interval_s(environment: Mapping[str, str]) -> float:
    """Return how often figures are sent, in seconds."""
    text = environment.get(_INTERVAL, "").strip()
    try:
        interval_ms = float(text) if text else _DEFAULT_INTERVAL_MS
    except ValueError:
        interval_ms = 0.0
    if not 1 <= interval_ms <= threading.TIMEOUT_MAX:
        raise UsageError(f"{_INTERVAL}={text}: must be a number of milliseconds, from 1 on")
    return interval_ms / 1000


def _refuse_other_protocols(environment: Mapping[str, str]) -> None:
    for name in _PROTOCOLS:
        wanted = environment.get(name, "").strip()
        if wanted == _HTTP:
            return
        if wanted:
            raise UsageError(f"{name}={wanted}: only {_HTTP} is sent, which collectors await on port 4318")


def is_disabled(environment: Mapping[str, str] = os.environ) -> bool:
    return environment.get("OTEL_SDK_DISABLED", "").strip().lower() == "true"
