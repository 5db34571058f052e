"""Measure every operator at every size: check the result, then time it."""

from collections.abc import Iterator, Sequence
from statistics import median

import torch

from perfkit.analysis.cross_rank.bandwidth import bus_factor
from perfkit.analysis.per_rank.communication.collective_metadata import CollectiveKey
from perfkit.capture.distributed.rank_group import ProcessRankGroup
from perfkit.collectives.config import OVERLAP_FROM_BYTES, CollectivesConfig, in_place_forms
from perfkit.collectives.measure.calls import Call, build_call
from perfkit.collectives.measure.groups import Place
from perfkit.collectives.measure.overlap import OverlapTest
from perfkit.collectives.measure.timing import Timer
from perfkit.collectives.operations import OPERATIONS, SIZELESS
from perfkit.collectives.sizes import Message, messages
from perfkit.schema.collectives import Measurement, Overlap, Series
from perfkit.stats.bootstrap import FEWEST_RUNS, median_interval
from perfkit.util.dtypes import DTYPES
from perfkit.util.formatting import size as show_size


def plan_series(config: CollectivesConfig, places: Sequence[Place]) -> list[tuple[Place, Series]]:
    """Return what is measured: every operator in every group, type and form."""
    return [
        (
            place,
            Series(
                operator=name,
                dimension=place.dimension,
                group_size=place.group_size,
                groups=place.groups,
                concurrent=config.concurrent,
                dtype=dtype,
                in_place=in_place,
            ),
        )
        for place in places
        for name in config.names
        for dtype in (config.dtypes[:1] if name == SIZELESS else config.dtypes)
        for in_place in in_place_forms(name, config.place)
    ]


class Benchmark:
    """Measures series of collectives; every rank does the same.

    Args:
        config: The options.
        ranks: All ranks.
        timer: Their clock.
        overlap: Measures beside computation; None leaves that out.
    """

    def __init__(
        self, config: CollectivesConfig, ranks: ProcessRankGroup, timer: Timer, overlap: OverlapTest | None = None
    ) -> None:
        self._config, self._ranks, self._timer, self._overlap = config, ranks, timer, overlap

    def sizes(self, series: Series) -> list[Message]:
        """Return the messages of a series."""
        if series.operator == SIZELESS:
            return [Message(0, 0, 0)]
        parts = series.group_size if OPERATIONS[series.operator].divided else 1
        item_bytes = DTYPES[series.dtype][1]
        return messages(self._config.smallest, self._config.largest, self._config.factor, item_bytes, parts)

    def measure(self, number: int, place: Place, series: Series) -> Iterator[tuple[Measurement, Overlap | None]]:
        """Measure a series at every size; beside computation from `OVERLAP_FROM_BYTES`.

        Args:
            number: Of the series.
            place: This rank's group.
            series: What to measure.
        """
        for size in self.sizes(series):
            self._ranks.current_activity = f"{series.operator} of {show_size(size.bytes)}"
            calls = self._build(place, series, size)
            wrong = self._count_wrong(calls)
            samples, repeated = self._time(calls)
            beside = None
            if self._overlap is not None and size.bytes >= OVERLAP_FROM_BYTES:
                beside = self._overlap.measure(calls[0] if calls else None, median(samples), number, size.bytes)
            yield _measurement(number, series, size, samples, repeated, wrong), beside

    def _build(self, place: Place, series: Series, size: Message) -> list[Call]:
        if place.member is None:
            return []
        dtype = getattr(torch, series.dtype)
        return [
            build_call(series.operator, place.member, size, dtype, series.in_place) for _ in range(series.concurrent)
        ]

    def _count_wrong(self, calls: Sequence[Call]) -> int:
        """Run every call once on values that show errors; return the wrong elements of all ranks."""
        for call in calls:
            call.fill()
        self._timer.together_ns(lambda: _run(calls))
        own = sum(call.count_wrong() for call in calls)
        for call in calls:
            call.clear()
        return sum(self._ranks.all_gather(own))

    def _time(self, calls: Sequence[Call]) -> tuple[list[float], int]:
        """Return the samples of the slowest rank, and the number of calls in each."""

        def action() -> None:
            _run(calls)

        self._timer.together_ns(action, self._config.warmup)
        per_sample = self._timer.calls_per_sample(action)
        samples = self._timer.samples_ns(action, self._config.repeats, per_sample)
        return self._timer.slowest(samples), per_sample


def _run(calls: Sequence[Call]) -> None:
    """Issue all calls, then wait for all."""
    for work in [work for call in calls for work in call.issue()]:
        work.wait()


def _measurement(
    number: int, series: Series, size: Message, samples: list[float], calls: int, wrong: int
) -> Measurement:
    time_ns = median(samples)
    algbw = size.bytes * series.concurrent * 1e9 / time_ns if size.bytes else None
    factor = bus_factor(CollectiveKey(OPERATIONS[series.operator].operator, None, series.group_size))
    return Measurement(
        series=number,
        bytes=size.bytes,
        elements=size.elements,
        samples_ns=samples,
        calls=calls,
        time_ns=time_ns,
        interval_ns=median_interval(samples) if len(samples) >= FEWEST_RUNS else None,
        algbw=algbw,
        busbw=algbw * factor if algbw is not None and factor is not None else None,
        wrong=wrong if size.bytes else None,
    )
