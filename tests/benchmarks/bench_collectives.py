"""Compare the times of all-reduces that `perfkit collectives` measures with those of a loop as one writes it by hand.

Usage, under torchrun: python -m tests.benchmarks.bench_collectives [TURNS BYTES …]

Both are measured in turns. The ratio is the median over the turns of the benchmark's time by the loop's: within 30 % of
1. Where the two ranks run decides about a tenth of a millisecond for as long as they live: small sizes vary with the
launch.
"""

import sys
import time
from statistics import median

import torch
import torch.distributed as dist

from perfkit.record.distributed.process_group import locate, process_group
from perfkit.tools.collectives.config import CollectivesConfig
from perfkit.tools.collectives.measure.benchmark import Benchmark, make_places, plan_series
from perfkit.tools.collectives.measure.timing import Timer


def by_hand(size: int) -> float:
    """Return the time of one all-reduce on the slowest rank."""
    tensor = torch.zeros(size // 4)
    calls = 20 if size < 1 << 20 else 3
    dist.all_reduce(tensor)
    dist.barrier()
    begin = time.perf_counter_ns()
    for _ in range(calls):
        dist.all_reduce(tensor)
    taken = torch.tensor((time.perf_counter_ns() - begin) / calls, dtype=torch.float64)
    dist.all_reduce(taken, dist.ReduceOp.MAX)
    return float(taken)


def main() -> None:
    """Print a line for each size."""
    turns, *sizes = map(int, sys.argv[1:] or ("15", "8", "4096", str(2 << 20)))
    info, mpi = locate()
    configs = {
        size: CollectivesConfig(operators="all_reduce", min_size=f"{size}", max_size=f"{size}", repeats=1, threads=1)
        for size in sizes
    }
    with process_group(configs[sizes[0]].run_config, info, mpi) as (ranks, topology):
        device = torch.device(topology.device)
        timer = Timer(ranks, device)
        places = make_places(None, ranks.rank, ranks.world_size, device, configs[sizes[0]].run_config.timeout_delta)
        times: dict[int, list[tuple[float, float]]] = {size: [] for size in sizes}
        for _ in range(turns):
            for size, config in configs.items():
                (measured,) = Benchmark(config, ranks, timer, plan_series(config, places)).measure()
                times[size].append((by_hand(size), measured.time_ns))
        if ranks.rank == 0:
            for size, pairs in times.items():
                print(f"{size:>9} B  ratio {median(measured / by_hand for by_hand, measured in pairs):.2f}")


if __name__ == "__main__":
    main()
