"""One rank that times all-reduces by a loop as one writes it by hand and by the benchmark, in turns.

Rank 0 prints the times in ns by size, as JSON: a pair of the loop's and the benchmark's in each turn.

Usage, under torchrun: python -m tests.support.processes.hand_written_loop TURNS BYTES …
"""

import json
import sys
import time

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
    turns, *sizes = map(int, sys.argv[1:])
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
            print(json.dumps(times))


if __name__ == "__main__":
    main()
