"""One rank of a loop of all-reduces as one writes it by hand: prints the time of each size on rank 0, as JSON.

Usage, under torchrun: python -m tests.support.processes.hand_written_loop BYTES …
"""

import json
import sys
import time

import torch
import torch.distributed as dist

SAMPLES = 10


def measure(size: int) -> list[float]:
    """Return the time of one all-reduce in ns, in each sample."""
    tensor = torch.zeros(size // 4)
    calls = 50 if size < 1 << 20 else 3
    dist.all_reduce(tensor)
    found = []
    for _ in range(SAMPLES):
        dist.barrier()
        begin = time.perf_counter_ns()
        for _ in range(calls):
            dist.all_reduce(tensor)
        found.append((time.perf_counter_ns() - begin) / calls)
    return found


if __name__ == "__main__":
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    times = {size: measure(size) for size in map(int, sys.argv[1:])}
    if dist.get_rank() == 0:
        print(json.dumps(times))
    dist.destroy_process_group()
