"""Trains on all ranks, which pass a message on in each step; in the sixth one, rank 1 or a pair does something else.

Run as ``messages.py HOW``.
"""

import sys
import time
from collections.abc import Callable

import torch
import torch.distributed as dist

STEPS = 12
BAD = 5


def load_batch() -> None:
    time.sleep(10_000)


def receive(bad: bool, rank: int, size: int) -> None:
    """The last rank receives from any, the others from the rank before."""
    if rank == size - 1:
        dist.recv(torch.ones(1000))
    elif rank:
        dist.recv(torch.ones(1000), rank - 1)
    if bad and rank == 1:
        load_batch()
    if rank + 1 < size:
        dist.send(torch.ones(1000), rank + 1)


def circle(bad: bool, rank: int, size: int) -> None:
    if bad and rank < 2:
        dist.recv(torch.ones(1000), 1 - rank)
    if rank:
        dist.recv(torch.ones(1000), rank - 1)
    if rank + 1 < size:
        dist.send(torch.ones(1000), rank + 1)


def batch(bad: bool, rank: int, size: int) -> None:
    operations = [dist.P2POp(dist.irecv, torch.ones(1000), rank - 1)] if rank else []
    if bad and rank == 1:
        load_batch()
    if rank + 1 < size:
        operations.append(dist.P2POp(dist.isend, torch.ones(1000), rank + 1))
    for request in dist.batch_isend_irecv(operations):
        request.wait()


PASS_ON: dict[str, Callable[[bool, int, int], None]] = {
    function.__name__: function for function in (receive, circle, batch)
}


def main() -> None:
    dist.init_process_group("gloo")
    rank, size = dist.get_rank(), dist.get_world_size()
    model = torch.nn.Linear(10, 10)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(STEPS):
        model(torch.ones(4, 10)).sum().backward()
        PASS_ON[sys.argv[1]](step == BAD, rank, size)
        optimizer.step()
    print("trained", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
