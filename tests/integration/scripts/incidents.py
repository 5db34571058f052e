"""A rank of a script that sleeps in one step, or runs out of memory in another."""

import sys
import time

import torch
from torch.nn.parallel import DistributedDataParallel

how, step_of_it = sys.argv[1], 40
torch.distributed.init_process_group("gloo")
rank = torch.distributed.get_rank()
model = DistributedDataParallel(torch.nn.Linear(8, 8))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(50):
    if step == step_of_it and rank == 1:
        if how == "memory":
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB.")
        time.sleep(6)
    time.sleep(0.01)
    model(torch.ones(4, 8)).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
torch.distributed.destroy_process_group()
