"""Runs one rank of the benchmark of collectives."""

import msgspec
import torch

from perfkit._version import __version__
from perfkit.record.benchmark.rank import Finish, as_dict, run_benchmark
from perfkit.record.distributed.rank_group import ProcessRankGroup
from perfkit.record.distributed.topology import Topology
from perfkit.record.recording.manifest_writer import versions
from perfkit.records.benchmark import CollectiveBenchmark, Overlap
from perfkit.tools.collectives.config import CollectivesConfig
from perfkit.tools.collectives.findings import find_problems, fit_series, unsupported_series
from perfkit.tools.collectives.measure.benchmark import Benchmark, make_places, plan_series
from perfkit.tools.collectives.measure.overlap import OverlapTest
from perfkit.tools.collectives.measure.pairs import measure_pairs
from perfkit.tools.collectives.measure.timing import Timer


def run_rank(
    config: CollectivesConfig, finish: Finish[CollectiveBenchmark], debug: bool = False
) -> CollectiveBenchmark | None:
    """Run one rank; all ranks call it.

    Returns:
        The record on rank 0; None on the others.

    Raises:
        PerfkitError: With a single rank. Of several, the first that fails prints the error, and all exit.
    """
    return run_benchmark("collectives", config, lambda setting: _measure(config, *setting), finish, debug)


def _measure(
    config: CollectivesConfig, ranks: ProcessRankGroup, topology: Topology, started: str
) -> CollectiveBenchmark:
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
