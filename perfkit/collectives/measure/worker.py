"""Runs one rank of the benchmark, from joining the process group to the finished record."""

import shutil
import tempfile
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import msgspec
import torch

from perfkit._version import __version__
from perfkit.capture.distributed.process_group import locate, process_group
from perfkit.capture.distributed.rank_group import ProcessRankGroup
from perfkit.capture.distributed.topology import Topology
from perfkit.capture.lifecycle.failure_guard import FailureGuard
from perfkit.capture.lifecycle.parent_watch import exit_with_parent
from perfkit.capture.lifecycle.watchdog import Watchdog, process_identity
from perfkit.capture.recording.manifest_writer import RunDescription, open_run, versions
from perfkit.collectives.config import CollectivesConfig
from perfkit.collectives.findings import find_problems, unsupported_series
from perfkit.collectives.fits import fit_series
from perfkit.collectives.measure.benchmark import Benchmark, plan_series
from perfkit.collectives.measure.groups import make_places
from perfkit.collectives.measure.overlap import OverlapTest
from perfkit.collectives.measure.pairs import measure_pairs
from perfkit.collectives.measure.timing import Timer
from perfkit.errors import UsageError
from perfkit.schema.benchmark.collectives import CollectiveBenchmark, Overlap

Finish = Callable[[CollectiveBenchmark], CollectiveBenchmark]
"""Called on rank 0 with the record, while the others wait; returns it with what it has added."""

_FOLDER: Final = "perfkit-collectives"


def run_rank(config: CollectivesConfig, finish: Finish, debug: bool = False) -> CollectiveBenchmark | None:
    """Run one rank; all ranks call it.

    Returns:
        The record on rank 0; None on the others.

    Raises:
        PerfkitError: With a single rank. Of several, the first that fails prints the error, and all exit.
    """
    exit_with_parent()
    started = datetime.now(UTC).isoformat(timespec="seconds")
    info, mpi = locate()
    with (
        FailureGuard(info.rank, info.world_size, debug) as guard,
        process_group(config.run_config, info, mpi) as (ranks, topology),
    ):
        ranks.run_on_all(lambda: config.check_world(info.world_size))
        _check_same_options(config, ranks)
        folder = _failure_folder(config, ranks, topology)
        guard.folder, guard.current_activity = folder, lambda: ranks.current_activity
        watchdog = Watchdog(info.rank, ranks.all_gather(process_identity()), folder, temporary=True)
        record = _measure(config, ranks, topology, started)
        finished = ranks.run_on(ranks.rank == 0, lambda: finish(record))
        watchdog.dismiss()
        if info.rank == 0:
            shutil.rmtree(folder, ignore_errors=True)
    return finished


def _check_same_options(config: CollectivesConfig, ranks: ProcessRankGroup) -> None:
    """Refuse ranks that were started with different options: they would wait for each other for ever.

    Raises:
        UsageError: This rank's options differ from rank 0's.
    """
    reference = ranks.broadcast(config)

    def check() -> None:
        if config != reference:
            raise UsageError("options differ from those of rank 0: start all ranks with the same options")

    ranks.run_on_all(check)


def _failure_folder(config: CollectivesConfig, ranks: ProcessRankGroup, topology: Topology) -> Path:
    """Create the temporary folder in which ranks and watchdog record the first failure; called by every rank."""
    description = RunDescription(workload="collectives", source="none", config=_as_dict(config))
    return open_run(ranks, topology, description, Path(tempfile.gettempdir()), _FOLDER)


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
        config=_as_dict(config),
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


def _as_dict(config: CollectivesConfig) -> dict[str, Any]:
    values: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(config))
    return values
