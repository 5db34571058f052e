"""Measure every operator at every size in its groups: check the result, then time it."""

import re
from collections.abc import Callable, Sequence
from datetime import timedelta
from statistics import median
from typing import Final, NamedTuple

import msgspec
import torch
import torch.distributed as dist

from perfkit._version import __version__
from perfkit.base.dtypes import DTYPES
from perfkit.base.formatting import size as show_size
from perfkit.base.statistics.bootstrap import FEWEST_RUNS, median_interval
from perfkit.engine.communication.collective_metadata import CollectiveKey
from perfkit.engine.ranks.bandwidth import bus_factor
from perfkit.options.mesh import MeshLayout
from perfkit.record.benchmark_rank import Setting, as_dict, progress
from perfkit.record.distributed.process_group import first_line
from perfkit.record.distributed.rank_group import ProcessRankGroup
from perfkit.record.recording.manifest_writer import versions
from perfkit.records.benchmark import CollectiveBenchmark, Measurement, Overlap, Series
from perfkit.tools.collectives.config import (
    OPERATIONS,
    OVERLAP_FROM_BYTES,
    SIZELESS,
    CollectivesConfig,
    Message,
    in_place_forms,
    messages,
)
from perfkit.tools.collectives.findings import find_problems, fit_series, unsupported_series
from perfkit.tools.collectives.measure.calls import Call, Member, build_call
from perfkit.tools.collectives.measure.overlap import OverlapTest
from perfkit.tools.collectives.measure.pairs import measure_pairs
from perfkit.tools.collectives.measure.timing import Timer


class Place(NamedTuple):
    """Where a series is measured: this rank's membership, and how many groups take part at once."""

    dimension: str | None
    """None for the group of all ranks."""
    group_size: int
    groups: int
    member: Member | None
    """None if this rank only waits."""


def make_places(
    layout: MeshLayout | None, rank: int, world_size: int, device: torch.device, timeout: timedelta
) -> list[Place]:
    """Create the process groups; called by all ranks.

    Args:
        layout: The mesh; None for one group of all ranks.
        rank: This rank.
        world_size: Number of ranks.
        device: Where this rank has its messages.
        timeout: Limit of each collective.

    Returns:
        The group of all ranks; or for each dimension with two ranks or more its first group alone, then, if it has
        several, all of its groups at once.
    """
    if layout is None:
        everybody = range(world_size)
        return [Place(None, world_size, 1, Member(None, everybody, rank, device))]
    places = []
    for name, size in layout.sizes.items():
        if size > 1:
            member = _join(layout.groups(name), rank, device, timeout, name)
            groups = world_size // size
            alone = member if rank in layout.groups(name)[0] else None
            places.append(Place(name, size, 1, alone))
            if groups > 1:
                places.append(Place(name, size, groups, member))
    return places


def _join(groups: Sequence[Sequence[int]], rank: int, device: torch.device, timeout: timedelta, name: str) -> Member:
    """Return this rank's membership in one of `groups`."""
    own = next(group for group in groups if rank in group)
    if len(groups) == 1:
        return Member(None, own, own.index(rank), device)
    made: tuple[dist.ProcessGroup, object] = dist.new_subgroups_by_enumeration(  # type: ignore[no-untyped-call]
        groups, timeout=timeout, group_desc=f"mesh_{name}"
    )
    return Member(made[0], own, own.index(rank), device)


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


_UNSUPPORTED: Final = re.compile(r"not (yet )?(support|implement)|unsupported|invalid scalar type", re.IGNORECASE)
"""In what backends raise, on every rank and before they communicate, for an operator or type that they lack."""


class _Cell:
    """One operator at one size, and what has been measured of it on this rank."""

    def __init__(self, number: int, place: Place, series: Series, size: Message) -> None:
        self.number, self.place, self.series, self.size = number, place, series, size
        self.samples_ns: list[float] = []
        self.calls_per_sample = 0
        self.wrong = 0

    @property
    def activity(self) -> str:
        """What it measures, in words."""
        return f"{self.series.operator} of {show_size(self.size.bytes)}"

    def build(self) -> list[Call]:
        """Return the calls that are in flight together; none if this rank takes no part."""
        if self.place.member is None:
            return []
        dtype = getattr(torch, self.series.dtype)
        return [
            build_call(self.series.operator, self.place.member, self.size, dtype, self.series.in_place)
            for _ in range(self.series.concurrent)
        ]

    def measurement(self, samples_ns: list[float]) -> Measurement:
        """Return the result from the samples of the slowest rank."""
        time_ns = median(samples_ns)
        algbw = self.size.bytes * self.series.concurrent * 1e9 / time_ns if self.size.bytes else None
        operator = OPERATIONS[self.series.operator].operator
        factor = bus_factor(CollectiveKey(operator, None, self.series.group_size))
        return Measurement(
            series=self.number,
            bytes=self.size.bytes,
            elements=self.size.elements,
            samples_ns=samples_ns,
            calls=self.calls_per_sample,
            time_ns=time_ns,
            interval_ns=median_interval(samples_ns) if len(samples_ns) >= FEWEST_RUNS else None,
            algbw=algbw,
            busbw=algbw * factor if algbw is not None and factor is not None else None,
            wrong=self.wrong if self.size.bytes else None,
        )


class Benchmark:
    """Measures series of collectives; every rank does the same.

    The repeats of a measurement are spread over the whole benchmark: each pass over all series and sizes adds one
    sample. So what else the machine does for a while disturbs a sample of many measurements, not all of one.

    Args:
        config: The options.
        ranks: All ranks.
        timer: Their clock.
        planned: What to measure.
    """

    def __init__(
        self, config: CollectivesConfig, ranks: ProcessRankGroup, timer: Timer, planned: list[tuple[Place, Series]]
    ) -> None:
        self._config, self._ranks, self._timer = config, ranks, timer
        self.unsupported: dict[int, str] = {}
        """Series that the backend does not support, by number, with its error."""
        self._cells = [
            _Cell(number, place, series, size)
            for number, (place, series) in enumerate(planned)
            for size in _sizes(config, series)
        ]

    def measure(self) -> list[Measurement]:
        """Measure every series at every size, without those that the backend does not support (`unsupported`)."""
        total = len(self._cells) * self._config.repeats
        with progress(total, visible=self._ranks.rank == 0) as show:
            for done in range(total):
                cell = self._cells[done % len(self._cells)]
                self._ranks.current_activity = cell.activity
                self._add_sample(cell)
                show(done + 1, cell.activity)
        self._cells = [cell for cell in self._cells if cell.number not in self.unsupported]
        slowest = self._timer.slowest([ns for cell in self._cells for ns in cell.samples_ns])
        repeats = self._config.repeats
        return [
            cell.measurement(slowest[place * repeats : (place + 1) * repeats]) for place, cell in enumerate(self._cells)
        ]

    def measure_overlap(self, test: OverlapTest, measurements: Sequence[Measurement]) -> list[Overlap]:
        """Measure every series beside computation, from `OVERLAP_FROM_BYTES` on.

        Args:
            test: How.
            measurements: The results of `measure`.
        """
        found = []
        for cell, measured in zip(self._cells, measurements, strict=True):
            if cell.size.bytes >= OVERLAP_FROM_BYTES:
                self._ranks.current_activity = f"{cell.activity} beside computation"
                call = next(iter(cell.build()), None)
                found.append(test.measure(call, measured.time_ns, cell.number, cell.size.bytes))
        return found

    def _add_sample(self, cell: _Cell) -> None:
        if cell.number in self.unsupported:
            return
        calls = cell.build()

        def action() -> None:
            _run(calls)

        if not cell.calls_per_sample:
            problem = self._find_unsupported(action)
            if problem is not None:
                self.unsupported[cell.number] = problem
                return
            cell.wrong = self._count_wrong(calls)
            cell.calls_per_sample = self._timer.calls_per_sample(action)
        self._timer.together_ns(action, self._config.warmup)
        cell.samples_ns.append(self._timer.together_ns(action, cell.calls_per_sample) / cell.calls_per_sample)

    def _find_unsupported(self, action: Callable[[], None]) -> str | None:
        """Run the calls for the first time; return the error of a backend that does not support them, on any rank."""
        problem = None
        try:
            self._timer.together_ns(action)
        except RuntimeError as error:
            if not _UNSUPPORTED.search(str(error)):
                raise
            problem = first_line(error)
        return next((one for one in self._ranks.all_gather(problem) if one is not None), None)

    def _count_wrong(self, calls: Sequence[Call]) -> int:
        """Run every call once on values that show errors; return the wrong elements of all ranks."""
        for call in calls:
            call.fill()
        self._timer.together_ns(lambda: _run(calls))
        own = sum(call.count_wrong() for call in calls)
        for call in calls:
            call.clear()
        return sum(self._ranks.all_gather(own))


def _sizes(config: CollectivesConfig, series: Series) -> list[Message]:
    """Return the messages of a series."""
    if series.operator == SIZELESS:
        return [Message(0, 0, 0)]
    parts = series.group_size if OPERATIONS[series.operator].divided else 1
    return messages(config.smallest, config.largest, config.factor, DTYPES[series.dtype][1], parts)


def _run(calls: Sequence[Call]) -> None:
    """Issue all calls, then wait for all."""
    works = calls[0].issue() if len(calls) == 1 else [work for call in calls for work in call.issue()]
    for work in works:
        work.wait()


def measure(config: CollectivesConfig, setting: Setting) -> CollectiveBenchmark:
    """Return the record of a benchmark; called by all ranks."""
    ranks, topology, started = setting
    device = torch.device(topology.device)
    layout = config.layout(ranks.world_size)
    places = make_places(layout, ranks.rank, ranks.world_size, device, config.run_config.timeout_delta)
    timer = Timer(ranks, device)
    planned = plan_series(config, places)
    series = [one for _, one in planned]
    own = ranks.all_gather((topology.host, topology.device_name, topology.node_cores))
    hosts, names, cores = ([*column] for column in zip(*own, strict=True))
    benchmark = Benchmark(config, ranks, timer, planned)
    measurements = benchmark.measure()
    overlaps: list[Overlap] = []
    if config.overlap:
        overlaps = benchmark.measure_overlap(OverlapTest(ranks, timer, device, config.repeats), measurements)
    pairs = measure_pairs(ranks, timer, device, hosts, config.largest, config.repeats) if config.pairs else None
    kind = device.type
    record = CollectiveBenchmark(
        perfkit_version=__version__,
        started_at=started,
        world_size=ranks.world_size,
        launcher=topology.world.launcher,
        hosts=hosts,
        cores=cores,
        device=kind,
        device_names=sorted(set(names)),
        backend=topology.backend or "",
        threads=topology.threads,
        versions=versions((), kind),
        config=as_dict(config),
        mesh=[] if layout is None else layout.record(),
        series=series,
        measurements=measurements,
        fits=fit_series(series, measurements),
        overlaps=overlaps,
        pairs=pairs,
        findings=[],
    )
    findings = [*find_problems(record), *unsupported_series(record, benchmark.unsupported)]
    return msgspec.structs.replace(record, findings=findings)
