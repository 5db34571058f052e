"""A learner on one rank, and an actor on the other, which gets the weights, never steps, and may go on for longer."""

import datetime
import sys
import time

import torch
import torch.distributed as dist

learner, longer_s = int(sys.argv[1]), float(sys.argv[2])
dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=30))
rank = dist.get_rank()
model = torch.nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(10):
    if rank == learner:
        optimizer.zero_grad()
        model(torch.ones(4, 8)).sum().backward()
        optimizer.step()
    for parameter in model.parameters():
        dist.broadcast(parameter.data, learner)
dist.destroy_process_group()
if rank != learner:
    time.sleep(longer_s)
