"""Traces of one process that uses several devices: those of `device_map`, `DataParallel` and pipelines within it."""

from collections.abc import Iterable
from typing import Final, NamedTuple, Self

from tests.support.traces.trace_builder import TraceBuilder

STEP_US: Final = 100_000
STEPS: Final = 3
GEMM: Final = "ampere_bf16_s16816gemm_bf16_128x256_ldg8_f2f_stages_64x3_tn"
NCCL: Final = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)"


class Kernel(NamedTuple):
    """Work of a device in every step; microseconds since the begin of the step."""

    device: int
    start_us: int
    us: int
    name: str = GEMM
    stream: int = 7
    cat: str = "kernel"
    launched_us: int | None = None
    """None: as the step begins, far ahead."""


class SeveralDevices(TraceBuilder):
    """Builds the trace of a process with several devices."""

    def steps(self, kernels: Iterable[Kernel], *, count: int = STEPS, pid: int | None = None) -> Self:
        """Add steps of 100 ms, in each of which the kernels run.

        Args:
            kernels: The work of all devices.
            count: Number of steps.
            pid: Process of device events; None: their device, as torch writes it.
        """
        listed = list(kernels)
        for number in range(count):
            begin = number * STEP_US
            self.step(number, begin, STEP_US).op("aten::mm", begin + 1, 500)
            for place, one in enumerate(listed):
                correlation = number * len(listed) + place + 1
                launched_us = 2 + 4 * place if one.launched_us is None else one.launched_us
                self.launch(correlation, begin + launched_us, 2)
                args = {"device": one.device, "stream": one.stream, "correlation": correlation}
                on = one.device if pid is None else pid
                self.event(one.cat, one.name, begin + one.start_us, one.us, pid=on, tid=one.stream, args=args)
        return self


def in_turns(shares: Iterable[float]) -> list[Kernel]:
    """Return the work of devices that take turns, each for a share of the step."""
    kernels, start = [], 0
    for device, share in enumerate(shares):
        kernels.append(Kernel(device, start, round(share * STEP_US)))
        start += round(share * STEP_US)
    return kernels


def at_once(shares: Iterable[float]) -> list[Kernel]:
    """Return the work of devices that all begin with the step, each for a share of it."""
    return [Kernel(device, 0, round(share * STEP_US)) for device, share in enumerate(shares)]
