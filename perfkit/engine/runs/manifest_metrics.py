"""Step times and host usage from run.json."""

from typing import Any

from perfkit.records.aggregate import clock_step_times
from perfkit.records.manifest import RankMemory, RankRecord, RunManifest
from perfkit.records.run import HostUsage


def manifest_metrics(manifest: RunManifest) -> dict[str, Any]:
    """Return the fields of a run's report that come from its manifest only."""
    return {
        "batch_size": manifest.batch_size,
        "started_at": manifest.started_at,
        "commit": manifest.commit,
        "versions": manifest.versions,
        "device_names": sorted({rank.device_name for rank in manifest.ranks}),
        "hosts": host_usage(manifest.ranks) if _all_ranks(manifest) else [],
        "rank_memory": _rank_memory(manifest),
        "step_times": clock_step_times(manifest.ranks, manifest.step_kinds) if _all_ranks(manifest) else None,
    }


def host_usage(ranks: list[RankRecord]) -> list[HostUsage]:
    """Return the devices, threads and cores that the ranks use on each host."""
    usage = []
    for host in dict.fromkeys(rank.host for rank in ranks):
        local = [rank for rank in ranks if rank.host == host]
        usage.append(
            HostUsage(
                host=host,
                device=local[0].device.partition(":")[0],
                device_name=local[0].device_name,
                ranks=len(local),
                threads=sum(rank.threads for rank in local),
                cores=local[0].node_cores,
            )
        )
    return usage


def _rank_memory(manifest: RunManifest) -> list[RankMemory]:
    held = [rank.memory for rank in sorted(manifest.ranks, key=lambda rank: rank.rank) if rank.memory is not None]
    return held if len(held) == manifest.world.world_size else []


def _all_ranks(manifest: RunManifest) -> bool:
    """Return whether the manifest has a record of every rank; of a failed run it may have only some."""
    return len(manifest.ranks) == manifest.world.world_size
