"""Samples a loader's worker processes while steps are recorded.

The process that trains says so by a file in the folder that it shares with its workers; a worker looks for it before
each batch, and leaves its samples in a file of its own after each.
"""

import os
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from perfkit.records.samples import RecordedSamples

if TYPE_CHECKING:
    from perfkit.record.recording.host_sampler import HostSampler
    from perfkit.record.recording.sampled_code import SampledCode

FLAG: Final = "sampling"
SUFFIX: Final = ".samples"
_MOST_SAMPLES: Final = 20_000
_WRITING: Final = 100
"""Writing takes at most one part in so many of a worker's time."""


class WorkerSampler:
    """Samples the worker process that makes it."""

    def __init__(self, folder: str, worker: int) -> None:
        self._flag = os.path.join(folder, FLAG)
        self._target = Path(folder, f"{os.getpid()}.{worker}{SUFFIX}")
        self._worker = worker
        self._sampler: HostSampler | None = None
        self._code: SampledCode | None = None
        self._count = 0
        self._written = self._took = 0

    def before_fetch(self) -> None:
        """Begin or end to sample, as the process that trains does."""
        wanted = os.path.exists(self._flag)
        if wanted and self._sampler is None:
            from perfkit.record.recording.host_sampler import HostSampler
            from perfkit.record.recording.sampled_code import SampledCode

            self._sampler = HostSampler()
            self._sampler.start()
            self._code = SampledCode(self._sampler.begin, self._worker)
            self._count = 0
        elif not wanted:
            self.stop()

    def stop(self) -> None:
        if self._sampler is not None:
            self._sampler.stop()
            self._sampler = None

    def after_fetch(self) -> None:
        """Leave the samples so far to the process that trains."""
        now = time.perf_counter_ns()
        if self._sampler is None or self._code is None or now - self._written < _WRITING * self._took:
            return
        rows = self._sampler.take()
        self._count += len(rows)
        if self._count > _MOST_SAMPLES:
            self._sampler.stop()
            return
        self._code.add(rows)
        # Lines of code are looked up once. Waiting for a core is no cost: on a busy machine it would leave few samples.
        begin_ns = time.thread_time_ns()
        with suppress(OSError):  # a full disk must not fail the program
            partial = self._target.with_suffix(".partial")
            partial.write_bytes(msgspec.json.encode(self._code.recorded(self._sampler.interval_ns)))
            partial.replace(self._target)
        self._written = time.perf_counter_ns()
        self._took = time.thread_time_ns() - begin_ns


def read_samples(folder: Path, begin_ns: int) -> list[RecordedSamples]:
    """Return what workers have sampled since an instant, as far as they have written it."""
    found = []
    for path in sorted(folder.glob(f"*{SUFFIX}")):
        with suppress(OSError, msgspec.DecodeError):
            found.append(msgspec.json.decode(path.read_bytes(), type=RecordedSamples))
    return [one for one in found if one.begin_ns + sum(sample.ns for sample in one.samples) > begin_ns]
