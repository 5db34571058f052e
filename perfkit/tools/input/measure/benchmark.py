"""Measure every series: cold and warm passes, and passes with steps between the loads."""

import gc
from collections.abc import Iterator, Mapping
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import msgspec
import numpy as np
from torch import Tensor

from perfkit._version import __version__
from perfkit.base.formatting import escape_unprintable
from perfkit.base.statistics.bootstrap import FEWEST_RUNS, median_interval
from perfkit.record.benchmark_rank import Setting, as_dict, progress
from perfkit.record.distributed.topology import prepare_on_nodes
from perfkit.record.recording.manifest_writer import versions
from perfkit.records.benchmark import (
    CacheState,
    HiddenLoads,
    InputBenchmark,
    InputFile,
    InputMeasurement,
    InputSeries,
    RankLoads,
)
from perfkit.tools.input.config import InputConfig, RandomTokens, describe_samples
from perfkit.tools.input.findings import find_problems
from perfkit.tools.input.measure.page_cache import (
    DROPPED_BY,
    FileSpeed,
    cached_share,
    drop,
    files_below,
    find_stripes,
    measure_speed,
)
from perfkit.tools.input.measure.processes import (
    Gate,
    GatedSource,
    Timed,
    checksum,
    memory_bytes,
    run_pass,
    summarize,
    workers,
)
from perfkit_workloads.data import DataOptions
from perfkit_workloads.data.divided import prepare_files
from perfkit_workloads.data.opening import Opened, Place, Samples, open_input
from perfkit_workloads.data.source import Source


class _Passes(NamedTuple):
    """The passes of a series in one state of the cache, on all ranks."""

    timed: list[list[Timed]]
    """By pass, then by rank."""
    cached: list[float | None]


class _Cell:
    """One series, and what has been measured of it."""

    def __init__(self, number: int, series: InputSeries, samples: Samples, files: list[Path]) -> None:
        self.number, self.series, self.samples, self.files = number, series, samples, files
        self.passes: dict[CacheState, _Passes] = {}
        self.steps: list[list[Timed]] = []
        self.memory: list[list[int | None]] = []
        self.checksums: list[int] = []

    @property
    def activity(self) -> str:
        workers = f", {self.series.num_workers} workers" if self.series.num_workers else ""
        return f"{self.series.source}, {self.series.read}{workers}"

    def add(self, cache: CacheState, by_rank: list[Timed], cached: float | None) -> None:
        found = self.passes.setdefault(cache, _Passes([], []))
        found.timed.append(by_rank)
        found.cached.append(cached)


class Benchmark:
    """Measures input; every rank does the same.

    The repeats of a series are spread over the whole benchmark, so that what else the machine does for a while disturbs
    a pass of many series, not all of one. Each repeat opens the files anew, in new worker processes.
    """

    def __init__(self, config: InputConfig, setting: Setting, sources: Mapping[str, Source[Any]]) -> None:
        self._config, self._ranks, self._topology = config, setting.ranks, setting.topology
        self.spec = describe_samples(config.samples, config.sample_bytes, config.seed)
        self.series = config.plan_series(sources)
        self._paths: dict[str, list[Path | None]] = {}
        self._cells = [self._prepare(number, one, sources) for number, one in enumerate(self.series)]
        self.speeds: dict[str, FileSpeed] = {}

    def measure(self) -> None:
        total = len(self._cells) * self._config.repeats
        with progress(total, visible=self._ranks.rank == 0) as show:
            for done in range(total):
                cell = self._cells[done % len(self._cells)]
                self._ranks.current_activity = f"loading from {cell.activity}"
                self._repeat(cell)
                show(done + 1, cell.activity)

    def measure_files(self) -> list[InputFile]:
        """Let rank 0 measure how fast the files can be read at all; empty on the other ranks."""
        self._ranks.current_activity = "measuring the files"
        return self._ranks.run_on(self._ranks.rank == 0, self._describe_files) or []

    def measurements(self) -> list[InputMeasurement]:
        """Return the results; `measure_files` comes before."""
        return [self._measurement(cell, cache) for cell in self._cells for cache in cell.passes]

    def hidden(self) -> list[HiddenLoads]:
        """Return how much of the loads the steps hid."""
        step_ns = self._config.step_ns
        return [] if step_ns is None else [_hidden(cell, step_ns) for cell in self._cells]

    def checksums(self) -> dict[int, list[int]]:
        """Return the checksums of the first batches by number of the series, of each rank."""
        return {cell.number: cell.checksums for cell in self._cells}

    def _prepare(self, number: int, series: InputSeries, sources: Mapping[str, Source[Any]]) -> _Cell:
        options, source = self._config.options_of(series), sources[series.source]
        if series.source not in self._paths:
            self._ranks.current_activity = f"writing the samples of {series.source}"
            self._paths[series.source] = prepare_on_nodes(
                self._ranks, self._topology, lambda: prepare_files(source, RandomTokens(), self.spec, options)
            )
        paths = self._paths[series.source]
        return _Cell(number, series, Samples(source, RandomTokens(), self.spec, paths, options), files_below(paths))

    def _repeat(self, cell: _Cell) -> None:
        series, options = cell.series, cell.samples.options
        before = memory_bytes(workers())
        gate = Gate(self._own_workers(options), options.worker_start)
        opened = self._open(cell, gate)
        batches = iter(opened.loader)
        self._ranks.run_on_all(gate.wait_for_workers)
        if self._config.cold and cell.files and not series.preload:
            self._drop(cell)
            cached = self._cached(cell)
            self._add(cell, "cold", self._first_pass(gate, batches), cached)
        else:
            self._first_pass(gate, batches)
        self._warm_passes(cell, opened)
        after = memory_bytes(workers())
        grown = None if before is None or after is None else max(0, after - before)
        cell.memory.append(self._ranks.all_gather(grown))
        if not cell.checksums:
            cell.checksums = self._ranks.all_gather(checksum(opened))
        del batches, opened
        gc.collect()  # ends the workers, and unmaps the files

    def _warm_passes(self, cell: _Cell, opened: Opened) -> None:
        cached = self._cached(cell)
        self._add(cell, "warm", run_pass(self._ranks, lambda: iter(opened.loader)), cached)
        if self._config.step_ns is not None:
            timed = run_pass(self._ranks, lambda: iter(opened.loader), self._config.step_ns)
            cell.steps.append(self._ranks.all_gather(timed))

    def _open(self, cell: _Cell, gate: Gate) -> Opened:
        """Open the source as a training run does; with `preload` the files are read here."""
        ranks, config = self._ranks, self._config
        samples = cell.samples._replace(source=GatedSource(cell.samples.source, gate))
        place = Place(ranks.world_size, ranks.rank, config.seed, config.batch_size)
        return ranks.run_on_all(lambda: open_input(samples, place, config.run_config.timeout_delta))

    def _first_pass(self, gate: Gate, batches: Iterator[dict[str, Tensor]]) -> Timed:
        def begin() -> Iterator[dict[str, Tensor]]:
            gate.open()
            return batches

        return run_pass(self._ranks, begin)

    def _own_workers(self, options: DataOptions) -> int:
        """Return the workers of this rank; ranks that only receive have none."""
        each = self._ranks.world_size // (options.readers or self._ranks.world_size)
        return options.num_workers if self._ranks.rank % each == 0 else 0

    def _drop(self, cell: _Cell) -> None:
        self._ranks.barrier()  # another rank may still have the files mapped
        self._ranks.run_on(self._topology.local_rank == 0, lambda: drop(cell.files))

    def _cached(self, cell: _Cell) -> float | None:
        return self._ranks.run_on(self._ranks.rank == 0, lambda: cached_share(cell.files))

    def _add(self, cell: _Cell, cache: CacheState, timed: Timed, cached: float | None) -> None:
        cell.add(cache, self._ranks.all_gather(timed), cached)

    def _describe_files(self) -> list[InputFile]:
        files = []
        for name, paths in self._paths.items():
            found = files_below(paths)
            if found:
                speed = self.speeds[name] = measure_speed(found)
                stripes = find_stripes(found[0])
                files.append(
                    InputFile(
                        source=name,
                        path=escape_unprintable(str(found[0])),
                        files=len(found),
                        bytes=sum(path.stat().st_size for path in found),
                        cold_bytes_per_s=speed.cold,
                        warm_bytes_per_s=speed.warm,
                        stripe_count=None if stripes is None else stripes.targets,
                        stripe_bytes=None if stripes is None else stripes.stripe_bytes,
                    )
                )
        return files

    def _measurement(self, cell: _Cell, cache: CacheState) -> InputMeasurement:
        timed, cached = cell.passes[cache]
        passes = [summarize(one) for one in timed]
        times = [one.load_ns for one in passes]
        load_ns = median(times)
        loads_per_s = self._ranks.world_size * 1e9 / load_ns
        known = [share for share in cached if share is not None]
        return InputMeasurement(
            series=cell.number,
            cache=cache,
            cached_share=(max(known) if cache == "cold" else min(known)) if known else None,
            loads=len(timed[0][0].loads_ns),
            passes=passes,
            load_ns=load_ns,
            median_ns=median(one.median_ns for one in passes),
            p99_ns=median(one.p99_ns for one in passes),
            interval_ns=median_interval(times) if len(times) >= FEWEST_RUNS else None,
            loads_per_s=loads_per_s,
            bytes_per_s=loads_per_s * self._config.batch_size * self.spec.sample_bytes,
            file_share=self._file_share(cell, cache, loads_per_s),
            ranks=[_rank_loads(cell, timed, rank) for rank in range(self._ranks.world_size)],
        )

    def _file_share(self, cell: _Cell, cache: CacheState, loads_per_s: float) -> float | None:
        """Return the bytes of the loaded samples in the files per second, as a share of the file's bandwidth."""
        speed = self.speeds.get(cell.series.source)
        bandwidth = None if speed is None else getattr(speed, cache)
        if not bandwidth or cell.series.preload:
            return None
        stored = sum(path.stat().st_size for path in cell.files) / self._config.samples
        return float(loads_per_s * self._config.batch_size * stored / bandwidth)


def _rank_loads(cell: _Cell, passes: list[list[Timed]], rank: int) -> RankLoads:
    own = [one[rank] for one in passes]
    loads = np.concatenate([one.loads_ns for one in own])
    cpu = [one.cpu_ns for one in own if one.cpu_ns is not None]
    memory = [one[rank] for one in cell.memory]
    known = [size for size in memory if size is not None]
    return RankLoads(
        rank=rank,
        load_ns=float(loads.mean()),
        median_ns=float(np.median(loads)),
        p99_ns=float(np.percentile(loads, 99)),
        cpu_ns=sum(cpu) / len(loads) if len(cpu) == len(own) else None,
        memory_bytes=max(known) if len(known) == len(memory) else None,
    )


def _hidden(cell: _Cell, step_ns: int) -> HiddenLoads:
    load_ns = median(summarize(one).load_ns for one in cell.passes["warm"].timed)
    wait_ns = median(summarize(one).load_ns for one in cell.steps)
    return HiddenLoads(
        series=cell.number,
        step_ns=step_ns,
        load_ns=load_ns,
        wait_ns=wait_ns,
        hidden=max(0.0, 1 - wait_ns / load_ns) if cell.series.num_workers else 0.0,
    )


def measure(config: InputConfig, setting: Setting, sources: Mapping[str, Source[Any]]) -> InputBenchmark:
    """Return the record of a benchmark; called by all ranks."""
    ranks, topology, started = setting
    own = ranks.all_gather((topology.host, topology.node_cores))
    hosts, cores = ([*column] for column in zip(*own, strict=True))
    benchmark = Benchmark(config, setting, sources)
    benchmark.measure()
    files = benchmark.measure_files()
    measurements = benchmark.measurements()
    cold = any(row.cache == "cold" for row in measurements)
    record = InputBenchmark(
        perfkit_version=__version__,
        started_at=started,
        world_size=ranks.world_size,
        launcher=topology.world.launcher,
        hosts=hosts,
        cores=cores,
        threads=topology.threads,
        versions=versions((source.package for source in sources.values()), "cpu"),
        config=as_dict(config),
        samples=config.samples,
        sample_bytes=benchmark.spec.sample_bytes,
        batch_size=config.batch_size,
        cache_dropped_by=DROPPED_BY if cold else None,
        series=benchmark.series,
        measurements=measurements,
        hidden=benchmark.hidden(),
        files=files,
        findings=[],
    )
    return msgspec.structs.replace(record, findings=find_problems(record, benchmark.checksums()))
