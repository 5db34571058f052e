"""The newest figures of the ranks of this host, read from their step logs when somebody wants them, and not before."""

import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

from perfkit.records.monitor import LOSS_GIVEN
from perfkit.storage.step_log.follow import RankLog, RunFollower
from perfkit.storage.step_log.reader import Records

RECENT: Final = 32
"""Steps whose median is told: as many as `perfkit watch` shows."""


class Figure(NamedTuple):
    """One figure of all ranks of this host that know it."""

    name: str
    """Without its unit: `step`."""
    unit: str
    """As UCUM writes it: `s`, `By`, `1`, `{sample}/s`, `{step}`; empty for a loss, whose unit nobody knows."""
    meaning: str
    values: Mapping[int, float]
    """By rank."""
    is_counter: bool = False
    """Whether it only grows while the run goes on."""


_DURATIONS: Final = (
    ("step", "s", "step_ns", "duration of a step without pauses"),
    ("device_step", "s", "device_ns", "duration of a step by the device's own events"),
    ("data_wait", "s", "data_ns", "waiting for the batch of a step"),
    ("forward", "s", "forward_ns", "forward passes of a step"),
    ("backward", "s", "backward_ns", "backward passes of a step"),
    ("optimizer", "s", "optimizer_ns", "steps of the optimizer"),
    ("collective_wait", "s", "collective_ns", "waiting of the host for collectives of a step"),
)
"""Name, unit, column of the log and meaning of what is told as the mean of the last steps in which it is known."""
_NEWEST: Final = (
    ("allocated", "By", "allocated_bytes", "bytes of the device that tensors hold"),
    ("peak_allocated", "By", "peak_allocated_bytes", "most bytes of the device that tensors held"),
    ("resident", "By", "rss_bytes", "resident memory of the process"),
    ("host_available", "By", "host_available_bytes", "memory that programs of the host can still get"),
    ("device_busy", "1", "device_busy", "share of the time in which the device ran a kernel"),
)


class HostFigures:
    """Reads what the ranks of this host have logged."""

    def __init__(self, folder: Path, samples_per_step: float | None) -> None:
        self.host = socket.gethostname()[:255]
        # Every host of the run is asked: each reads its own ranks' logs, not all of them from all hosts.
        self._run = RunFollower(folder, RECENT, self.host)
        self._samples_per_step = samples_per_step
        self._lock = threading.Lock()

    @property
    def run(self) -> str:
        return self._run.name

    def read(self) -> list[Figure]:
        """Read what was logged since the last time, and return every figure that is known of any rank."""
        with self._lock:  # two may ask at a time
            self._run.read()
            logs = {rank: log for rank, log in self._run.logs.items() if len(log.records) and log.host == self.host}
            found = [*self._columns(logs), *self._progress(logs)]
        return [figure for figure in found if figure.values]

    def _columns(self, logs: Mapping[int, RankLog]) -> Iterator[Figure]:
        for name, unit, column, meaning in _DURATIONS:
            values = _known(logs, partial(_mean_s, column=column))
            yield Figure(name, unit, f"{meaning}: mean of the last {RECENT} steps", values)
        for name, unit, column, meaning in _NEWEST:
            yield Figure(name, unit, meaning, _known(logs, partial(_newest, column=column)))

    def _progress(self, logs: Mapping[int, RankLog]) -> Iterator[Figure]:
        ended = _known(logs, lambda log: int(log.records[-1]["step"]) + int(log.records[-1]["steps"]))
        yield Figure("steps", "{step}", "steps that have ended", ended, is_counter=True)
        last = _known(logs, lambda log: _end_s(log.records))
        yield Figure("last_step_end_timestamp", "s", "Unix time of the newest step's end", last)
        loss = _known(logs, lambda log: _loss(log.records))
        yield Figure("loss", "", f"newest loss of the last {RECENT} steps", loss)
        rates = _known(logs, self._rate)
        yield Figure("samples", "{sample}/s", "samples of the rank, by its mean step", rates)

    def _rate(self, log: RankLog) -> float | None:
        step_s = _mean_s(log, "step_ns")
        return None if self._samples_per_step is None or not step_s else self._samples_per_step / step_s


def _known(logs: Mapping[int, RankLog], value_of: Callable[[RankLog], float | None]) -> dict[int, float]:
    values = {rank: value_of(log) for rank, log in logs.items()}
    return {rank: value for rank, value in values.items() if value is not None}


def _mean_s(log: RankLog, column: str) -> float | None:
    if column == "collective_ns" and not log.device.startswith("cpu"):
        return None  # the device waits, and the host does not see it
    values = log.records[column]
    known = values[values >= 0]
    return float(known.mean()) / 1e9 if len(known) else None


def _newest(log: RankLog, column: str) -> float | None:
    value = float(log.records[column][-1])
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
