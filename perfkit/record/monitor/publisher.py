"""Lets others read the newest metrics of this host while a run goes on: Prometheus, and OpenTelemetry's collector."""

import os
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from perfkit.errors import UsageError
from perfkit.options.recording import RecordingOptions
from perfkit.record.messages import one_line, print_warning
from perfkit.record.step_listener import StepListener

if TYPE_CHECKING:
    from perfkit.record.monitor.metrics import MetricsServer
    from perfkit.record.monitor.otlp import OtlpSender


class Publisher(StepListener):
    """Publishes what the ranks of this host log, from the first step to the end; a line reports what it cannot offer.

    Args:
        folder: The run's, with the step logs.
        samples_per_step: Of a rank; None if unknown.
    """

    def __init__(self, folder: Path, options: RecordingOptions, samples_per_step: float | None) -> None:
        self._source = folder, samples_per_step
        self._port, self._otlp = options.metrics_port, options.otlp
        self._open: list[MetricsServer | OtlpSender] = []

    def begin(self) -> None:
        if self._port is not None:
            self._answer_prometheus(self._port)
        if self._otlp:
            self._send_by_otlp()

    def fail(self, _error: BaseException, /) -> None:
        self.discard()

    def discard(self) -> None:
        while self._open:
            with suppress(Exception):  # the outermost boundary: beyond it is the end of the program
                self._open.pop().close()

    def _answer_prometheus(self, port: int) -> None:
        from perfkit.record.monitor.metrics import HOST, MetricsServer  # an extra

        try:
            self._open.append(MetricsServer(port, *self._source))
        except (OSError, RuntimeError) as error:  # RuntimeError: the process may start no more threads
            why = getattr(error, "strerror", None) or one_line(error)
            print_warning(f"--metrics-port {port}: no figures for Prometheus: {HOST}:{port}: {why}")

    def _send_by_otlp(self) -> None:
        from perfkit.record.monitor.otlp import OtlpSender, is_disabled  # an extra

        if is_disabled():
            print_warning("--otlp: no figures for OpenTelemetry: OTEL_SDK_DISABLED=true")
            return
        try:
            self._open.append(OtlpSender(*self._source, os.environ))
        except (OSError, RuntimeError, ValueError, UsageError) as error:
            print_warning(f"--otlp: no figures for OpenTelemetry: {one_line(error)}")
