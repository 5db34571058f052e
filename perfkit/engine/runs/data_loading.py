"""How long the ranks of a run wait for data, and how fast their samples are read."""

from statistics import median

from perfkit.records.manifest import RunManifest
from perfkit.records.rank import RankReport
from perfkit.records.run import DataLoading


def data_loading(ranks: list[RankReport], manifest: RunManifest | None, source: str | None) -> DataLoading | None:
    """Return how the ranks' steps load data; None if no load was seen.

    Args:
        ranks: the ranks.
        manifest: the run's manifest; None for foreign traces.
        source: name of the input source.
    """
    loads = [
        (span_ns, rank.rank, step.step) for rank in ranks for step in rank.steps for span_ns in step.loads.spans_ns
    ]
    if not loads:
        return None
    max_ns, max_rank, max_step = max(loads, key=lambda load: load[0])
    wall_ns = sum(step.wall_ns for rank in ranks for step in rank.steps)
    exposed_ns = sum(step.exposed_ns.data_loading for rank in ranks for step in rank.steps)
    sum_ns = sum(span_ns for span_ns, _, _ in loads)
    rate, speed = _read_rate(manifest, ranks, sum_ns), manifest.file_bandwidth if manifest else None
    return DataLoading(
        source=source,
        count=len(loads),
        median_ns=round(median(span_ns for span_ns, _, _ in loads)),
        max_ns=max_ns,
        max_rank=max_rank,
        max_step=max_step,
        exposed_share=exposed_ns / wall_ns if wall_ns else 0.0,
        read_bytes_per_s=rate,
        file_bandwidth=speed,
        file_share=rate / len(ranks) / speed.bytes_per_s if rate and speed and speed.bytes_per_s > 0 else None,
    )


def _read_rate(manifest: RunManifest | None, ranks: list[RankReport], sum_ns: int) -> float | None:
    """Return bytes of samples per second of waiting for them, summed over ranks.

    Batches are counted by steps, not by loads: the load that hits the end of an epoch returns no batch.
    """
    if manifest is None or manifest.batch_size is None or manifest.sample_bytes is None or not sum_ns:
        return None
    if manifest.throughput is None or manifest.throughput.read_bytes_per_s is None:
        return None  # waiting time is not reading time
    batches = sum(len(rank.steps) for rank in ranks)
    return batches * manifest.batch_size * manifest.sample_bytes * 1e9 / (sum_ns / len(ranks))
