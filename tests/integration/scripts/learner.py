"""A learner on rank 0 and an actor on rank 1, which gets the weights and never steps."""

import datetime

import torch
import torch.distributed as dist

dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=30))
rank = dist.get_rank()
model = torch.nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(10):
    if rank == 0:
        optimizer.zero_grad()
        model(torch.ones(4, 8)).sum().backward()
        optimizer.step()
    for parameter in model.parameters():
        dist.broadcast(parameter.data, 0)
dist.destroy_process_group()
