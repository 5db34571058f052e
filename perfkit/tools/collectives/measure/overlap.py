"""`--overlap`: a collective beside matrix multiplications that take about as long."""

import time
from statistics import median
from typing import Final, NamedTuple

import torch

from perfkit.record.distributed.rank_group import ProcessRankGroup
from perfkit.records.benchmark import Overlap
from perfkit.tools.collectives.measure.calls import Call
from perfkit.tools.collectives.measure.timing import Timer

_WIDTH: Final = {"cpu": 128}
_DEVICE_WIDTH: Final = 1024
"""Width of the matrices: one multiplication takes a small part of the collective's time."""
_CALIBRATION: Final = 50
_TRIALS: Final = 3
_MOST_PIECES: Final = 100_000


class _Ends(NamedTuple):
    """How long after the begin communication and computation ended, in ns."""

    communication_ns: float
    compute_ns: float


class OverlapTest:
    """Measures collectives beside computation; every rank does the same."""

    def __init__(self, ranks: ProcessRankGroup, timer: Timer, device: torch.device, repeats: int) -> None:
        self._ranks, self._timer, self._device, self._repeats = ranks, timer, device, repeats
        width = _WIDTH.get(device.type, _DEVICE_WIDTH)
        self._factors = torch.ones(2, width, width, device=device)
        self._product = torch.empty(width, width, device=device)
        timer.together_ns(self._multiply, _CALIBRATION)
        own = timer.together_ns(self._multiply, _CALIBRATION) / _CALIBRATION
        self._piece_ns: float = max(ranks.all_gather(own))

    def measure(self, call: Call | None, expected_ns: float, series: int, message_bytes: int) -> Overlap:
        """Measure a collective alone, the multiplications alone, and both together."""
        pieces = self._pieces(expected_ns) if call else 0
        shortest = min(self._sample(None, pieces).compute_ns for _ in range(_TRIALS))
        (tried_ns,) = self._timer.slowest([shortest])
        pieces = self._pieces(expected_ns * expected_ns / tried_ns) if call else 0
        samples: list[tuple[float, ...]] = []
        for _ in range(self._repeats):  # in turns, so that what else the machine does disturbs all alike
            alone, computed, ends = self._sample(call, 0), self._sample(None, pieces), self._sample(call, pieces)
            samples.append((alone.communication_ns, computed.compute_ns, *ends))
        columns = [self._timer.slowest(column) for column in zip(*samples, strict=True)]
        communication_ns, compute_ns, overlapped_communication_ns, overlapped_compute_ns = map(median, columns)
        together_ns = median(map(max, *columns[2:]))
        saved = (communication_ns + compute_ns - together_ns) / min(communication_ns, compute_ns)
        return Overlap(
            series=series,
            bytes=message_bytes,
            communication_ns=communication_ns,
            compute_ns=compute_ns,
            overlapped_communication_ns=overlapped_communication_ns,
            overlapped_compute_ns=overlapped_compute_ns,
            together_ns=together_ns,
            hidden=max(0.0, min(1.0, saved)),
        )

    def _pieces(self, expected_ns: float) -> int:
        """Return the number of multiplications that take so long, if they are as fast as when they were calibrated."""
        return max(1, min(_MOST_PIECES, round(expected_ns / self._piece_ns)))

    def _multiply(self) -> None:
        torch.mm(*self._factors, out=self._product)

    def _sample(self, call: Call | None, pieces: int) -> _Ends:
        """Issue the collective, multiply, and wait; begun on all ranks at once."""
        self._ranks.barrier()
        if self._device.type == "cpu":
            begin = time.perf_counter_ns()
            works = list(call.issue()) if call else []
            ended: int | None = None
            for _ in range(pieces):
                self._multiply()
                if ended is None and all(work.is_completed() for work in works):
                    ended = time.perf_counter_ns()
            computed = time.perf_counter_ns()
            for work in works:
                work.wait()
            ended = ended or time.perf_counter_ns()
            return _Ends(ended - begin, computed - begin)
        return self._on_device(call, pieces)

    def _on_device(self, call: Call | None, pieces: int) -> _Ends:
        """Time both in separate streams: the host only issues them."""
        module = torch.get_device_module(self._device.type)
        begin, communicated, computed = (module.Event(enable_timing=True) for _ in range(3))
        waiting = module.Stream()
        begin.record()
        works = list(call.issue()) if call else []
        waiting.wait_stream(module.current_stream())
        with module.stream(waiting):
            for work in works:
                work.wait()
            communicated.record()
        for _ in range(pieces):
            self._multiply()
        computed.record()
        module.synchronize()
        return _Ends(1e6 * begin.elapsed_time(communicated), 1e6 * begin.elapsed_time(computed))
