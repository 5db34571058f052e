"""What a run says of itself: how long its steps took by its own clock, and what it used of its hosts."""

from statistics import median
from typing import Any

from perfkit.schema.manifest import RankRecord, RunManifest, StepKind
from perfkit.schema.run import HostUsage, StepTimes


def manifest_metrics(manifest: RunManifest) -> dict[str, Any]:
    """Return the fields of a run's report that come from its manifest alone."""
    return {
        "batch_size": manifest.batch_size,
        "started_at": manifest.started_at,
        "commit": manifest.commit,
        "versions": manifest.versions,
        "device_names": sorted({rank.device_name for rank in manifest.ranks}),
        "hosts": host_usage(manifest.ranks) if _all_ranks(manifest) else [],
        "step_times": _step_times(manifest) if _all_ranks(manifest) else None,
    }


def median_step_ns(manifest: RunManifest, kind: StepKind) -> int | None:
    """Return the median over steps of one kind of the largest wall over ranks; None where there is none."""
    walls = _walls(manifest, kind)
    return round(median(walls)) if walls else None


def host_usage(ranks: list[RankRecord]) -> list[HostUsage]:
    """Return what ranks use of each host."""
    used = []
    for host in dict.fromkeys(rank.host for rank in ranks):
        here = [rank for rank in ranks if rank.host == host]
        used.append(
            HostUsage(
                host=host,
                device=here[0].device.partition(":")[0],
                device_name=here[0].device_name,
                ranks=len(here),
                threads=sum(rank.threads for rank in here),
                cores=here[0].node_cores,
            )
        )
    return used


def _all_ranks(manifest: RunManifest) -> bool:
    """Say whether every rank has told of itself: of a failed run only one may have."""
    return len(manifest.ranks) == manifest.world.world_size


def _step_times(manifest: RunManifest) -> StepTimes:
    return StepTimes(plain_ns=_walls(manifest, "plain"), recorded_ns=_walls(manifest, "active"))


def _walls(manifest: RunManifest, kind: StepKind) -> list[int]:
    """Return the largest wall over ranks of every completed step of one kind."""
    completed = min((len(rank.step_wall_ns) for rank in manifest.ranks), default=0)
    return [
        max(rank.step_wall_ns[step] for rank in manifest.ranks)
        for step, this in enumerate(manifest.step_kinds[:completed])
        if this == kind
    ]
