"""Runs one rank of the benchmark of input."""

from collections.abc import Mapping
from typing import Any

import msgspec

from perfkit._version import __version__
from perfkit.record.benchmark.rank import Finish, Setting, as_dict, run_benchmark
from perfkit.record.recording.manifest_writer import versions
from perfkit.records.benchmark import InputBenchmark
from perfkit.tools.input.config import InputConfig
from perfkit.tools.input.findings import find_problems
from perfkit.tools.input.measure.benchmark import Benchmark
from perfkit.tools.input.measure.page_cache import DROPPED_BY
from perfkit_workloads.data.source import Source


def run_rank(
    config: InputConfig, sources: Mapping[str, Source[Any]], finish: Finish[InputBenchmark], debug: bool = False
) -> InputBenchmark | None:
    """Run one rank; all ranks call it.

    Args:
        config: The options.
        sources: What to measure, by name.
        finish: Called on rank 0 with the record.
        debug: Whether to print the traceback of an error.

    Returns:
        The record on rank 0; None on the others.

    Raises:
        PerfkitError: With a single rank. Of several, the first that fails prints the error, and all exit.
    """
    return run_benchmark("input", config, lambda setting: _measure(config, setting, sources), finish, debug)


def _measure(config: InputConfig, setting: Setting, sources: Mapping[str, Source[Any]]) -> InputBenchmark:
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
