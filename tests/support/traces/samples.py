"""Samples of the main thread in a header of a trace."""

from collections.abc import Sequence
from typing import Any

import msgspec

from perfkit.records.samples import RecordedSample, RecordedSamples, SampledFunction, SampledPlace
from tests.support.traces.trace_builder import BASE_NS

Stack = Sequence[tuple[str, int] | tuple[str, int, str]]
"""Names as in `train.py(12): main`, with the line that runs and what it calls, innermost first."""


def recorded(
    rows: Sequence[tuple[int, Stack] | tuple[int, Stack, int, int]], *, begin_us: int = 0, worker: int = -1
) -> RecordedSamples:
    """Return samples at intervals of 1 ms, or later where a C function delays them.

    Args:
        rows: when each is taken (us since the base time of a trace) and its stack; then how long the thread ran since
            the one before (us), all of it by default, and how often it began to wait.
        begin_us: when sampling began.
        worker: whose they are.
    """
    functions: dict[str, int] = {}
    places: dict[Any, int] = {}
    stacks: list[list[int]] = []
    samples: list[RecordedSample] = []
    last = begin_us
    for at, stack, *ran in rows:
        cpu, waits = ran or (at - last, 0)
        numbers = []
        for name, *where in stack:
            number = functions.setdefault(name, len(functions))
            numbers.append(places.setdefault((number, *where), len(places)))
        samples.append(RecordedSample((at - last) * 1000, cpu * 1000, waits, len(stacks)))
        stacks.append(numbers)
        last = at
    return RecordedSamples(
        worker=worker,
        begin_ns=BASE_NS + begin_us * 1000,
        interval_ns=1_000_000,
        functions=[_function(name) for name in functions],
        places=[SampledPlace(*key) for key in places],
        stacks=stacks,
        samples=samples,
    )


def _function(name: str) -> SampledFunction:
    file, _, rest = name.partition("(")
    line, _, function = rest.partition("): ")
    return SampledFunction(file, function, int(line))


def header(samples: RecordedSamples, **more: Any) -> dict[str, Any]:
    """Return perfkit's part of the header of a trace."""
    built: dict[str, Any] = msgspec.to_builtins(samples)
    return {"samples": built, **more}
