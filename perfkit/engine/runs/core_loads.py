"""How busy other processes kept the cores that ranks may run on (metrics.md section 27)."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean

from perfkit.records.run import CoreLoad
from perfkit.records.trace_header import CoreUse


def core_loads(uses: Iterable[tuple[int | None, CoreUse | None]], ranks: int) -> list[CoreLoad]:
    """Return the load of each set of cores that ranks share; empty unless all ranks have recorded it.

    What a rank of the run without a trace used would count as that of other processes.

    Args:
        uses: of each trace, its rank and what it has recorded.
        ranks: how many ranks the run has.
    """
    by_cores: dict[str, dict[int | None, list[CoreUse]]] = defaultdict(lambda: defaultdict(list))
    for rank, use in uses:
        if use is None or use.window_ns <= 0 or use.count <= 0:
            return []
        by_cores[use.cores][rank].append(use)
    if sum(map(len, by_cores.values())) < ranks:
        return []
    return [_load(of_ranks) for of_ranks in by_cores.values()]


def _load(of_ranks: Mapping[int | None, Sequence[CoreUse]]) -> CoreLoad:
    cores = next(iter(of_ranks.values()))[0].count
    windows_ns = {rank: sum(use.window_ns for use in uses) for rank, uses in of_ranks.items()}
    own = sum(sum(use.own_ns for use in uses) / windows_ns[rank] for rank, uses in of_ranks.items())
    busy = fmean(sum(use.busy_ns for use in uses) / windows_ns[rank] for rank, uses in of_ranks.items())
    busy = min(busy, float(cores))  # the system counts in ticks, which may be late
    others, idle = max(0.0, busy - own), cores - busy
    return CoreLoad(
        ranks=sorted(rank for rank in of_ranks if rank is not None),
        cores=cores,
        own=own,
        others=others,
        idle=idle,
        taken_share=max(0.0, others - idle) / cores,
    )
