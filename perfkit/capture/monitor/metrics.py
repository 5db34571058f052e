"""The newest figures of the monitor for Prometheus: read from the step logs when it asks, and not before.

This needs the extra `metrics`, unlike everything else of the monitor.
"""

import socket
import threading
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from perfkit.capture.hangs.rank_state import OWN_THREAD
from perfkit.schema.monitor.columns import LOSS_GIVEN
from perfkit.storage.step_log.follow import RankLog, RunFollower
from perfkit.storage.step_log.roll_up import Records

HOST: Final = "127.0.0.1"
RECENT: Final = 32
"""Steps whose median is told: as many as `perfkit watch` shows."""


class _Gauge(NamedTuple):
    """A column of the log, as Prometheus gets it."""

    name: str
    column: str
    meaning: str


_DURATIONS: Final = (
    _Gauge("perfkit_step_seconds", "step_ns", "duration of a step without pauses"),
    _Gauge("perfkit_device_step_seconds", "device_ns", "duration of a step by the device's own events"),
    _Gauge("perfkit_data_wait_seconds", "data_ns", "waiting for the batch of a step"),
    _Gauge("perfkit_forward_seconds", "forward_ns", "forward passes of a step"),
    _Gauge("perfkit_backward_seconds", "backward_ns", "backward passes of a step"),
    _Gauge("perfkit_optimizer_seconds", "optimizer_ns", "steps of the optimizer"),
    _Gauge("perfkit_collective_wait_seconds", "collective_ns", "waiting of the host for collectives of a step"),
)
"""Medians of the last steps in which they are known."""
_NEWEST: Final = (
    _Gauge("perfkit_allocated_bytes", "allocated_bytes", "bytes of the device that tensors hold"),
    _Gauge("perfkit_peak_allocated_bytes", "peak_allocated_bytes", "most bytes of the device that tensors held"),
    _Gauge("perfkit_resident_bytes", "rss_bytes", "resident memory of the process"),
    _Gauge("perfkit_host_available_bytes", "host_available_bytes", "memory that programs of the host can still get"),
    _Gauge("perfkit_device_busy_ratio", "device_busy", "share of the time in which the device ran a kernel"),
)


class MetricsServer:
    """Answers Prometheus on loopback, in threads of its own, until it is closed.

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
        self._thread.name = f"{OWN_THREAD}metrics"

    def close(self) -> None:
        """Answer no more."""
        self._server.shutdown()
        with suppress(OSError):  # forked children, such as workers of a loader, have the socket too: it listens no more
            self._server.socket.shutdown(socket.SHUT_RDWR)
        self._server.server_close()
        self._thread.join(timeout=5)


class StepMetrics(Collector):
    """What is told of the ranks of this host: every figure that is known of any of them.

    Args:
        folder: The run's folder.
        samples_per_step: Samples of a rank per step; None if unknown.
    """

    def __init__(self, folder: Path, samples_per_step: float | None) -> None:
        self._host = socket.gethostname()[:255]
        # Every host of the run is asked: each reads its own ranks' logs, not all of them from all hosts.
        self._run = RunFollower(folder, RECENT, self._host)
        self._samples_per_step = samples_per_step
        self._lock = threading.Lock()

    def describe(self) -> list[Metric]:
        """Return nothing: which figures there are shows when they are read."""
        return []

    def collect(self) -> Iterator[Metric]:
        """Read what was logged since the last time, and yield the figures."""
        with self._lock:  # two may ask at a time
            self._run.read()
            logs = {rank: log for rank, log in self._run.logs.items() if len(log.records) and log.host == self._host}
            found = [*self._durations(logs), *self._newest(logs), *self._progress(logs)]
        yield from (metric for metric in found if metric.samples)

    def _durations(self, logs: Mapping[int, RankLog]) -> Iterator[Metric]:
        for gauge in _DURATIONS:
            values = {rank: _median_s(log, gauge.column) for rank, log in logs.items()}
            yield self._gauge(gauge.name, f"{gauge.meaning}: median of the last {RECENT} steps", values)

    def _newest(self, logs: Mapping[int, RankLog]) -> Iterator[Metric]:
        for gauge in _NEWEST:
            values = {rank: _known(float(log.records[gauge.column][-1])) for rank, log in logs.items()}
            yield self._gauge(gauge.name, gauge.meaning, values)

    def _progress(self, logs: Mapping[int, RankLog]) -> Iterator[Metric]:
        steps = CounterMetricFamily("perfkit_steps", "steps that have ended", labels=("run", "rank"))
        for rank, log in logs.items():
            last = log.records[-1]
            steps.add_metric((self._run.name, str(rank)), int(last["step"]) + int(last["steps"]))
        yield steps
        ended = {rank: _end_s(log.records) for rank, log in logs.items()}
        yield self._gauge("perfkit_last_step_end_timestamp_seconds", "Unix time of the newest step's end", ended)
        loss = {rank: _loss(log.records) for rank, log in logs.items()}
        yield self._gauge("perfkit_loss", f"newest loss of the last {RECENT} steps", loss)
        rates = {rank: self._rate(log) for rank, log in logs.items()}
        yield self._gauge("perfkit_samples_per_second", "samples of the rank, by the median of its steps", rates)

    def _rate(self, log: RankLog) -> float | None:
        step_s = _median_s(log, "step_ns")
        return None if self._samples_per_step is None or not step_s else self._samples_per_step / step_s

    def _gauge(self, name: str, meaning: str, values: Mapping[int, float | None]) -> Metric:
        metric = GaugeMetricFamily(name, meaning, labels=("run", "rank"))
        for rank, value in values.items():
            if value is not None:
                metric.add_metric((self._run.name, str(rank)), value)
        return metric


def _median_s(log: RankLog, column: str) -> float | None:
    """Return the median of a column of durations in seconds; None if it is not known."""
    if column == "collective_ns" and not log.device.startswith("cpu"):
        return None  # the device waits, and the host does not see it
    values = log.records[column]
    known = values[values >= 0]
    return float(np.median(known)) / 1e9 if len(known) else None


def _known(value: float) -> float | None:
    return value if value >= 0 else None  # neither -1 nor NaN


def _end_s(records: Records) -> float | None:
    """Return when the newest step ended, in Unix time; None if it was rolled up."""
    last = records[-1]
    if int(last["steps"]) > 1 or int(last["step_ns"]) < 0:
        return None
    return (int(last["begin_ns"]) + int(last["step_ns"]) + max(0, int(last["pause_ns"]))) / 1e9


def _loss(records: Records) -> float | None:
    """Return the newest loss that was given, which need not be a number; None without one."""
    given = records["loss"][(records["flags"] & LOSS_GIVEN) != 0]
    return float(given[-1]) if len(given) else None
