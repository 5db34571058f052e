"""A DDP script that starts its own ranks: spawns_ranks.py [fail]."""

import os
import sys

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

from tests.support.processes.ports import free_port


def train(rank: int, port: int) -> None:
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    dist.init_process_group("gloo", rank=rank, world_size=2)
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(8, 8))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(10):
        optimizer.zero_grad()
        model(torch.ones(2, 8)).sum().backward()
        optimizer.step()
    if "fail" in sys.argv and rank == 1:
        raise ValueError("after training")
    dist.destroy_process_group()


if __name__ == "__main__":
    mp.spawn(train, args=(free_port(),), nprocs=2)  # type: ignore[attr-defined, no-untyped-call]
    print("trained")
