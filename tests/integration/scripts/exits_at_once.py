"""Two ranks that train without each other: rank 1 ends by `os._exit(CODE)` after its schedule, rank 0 1 s later."""

import os
import sys
import time

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
model = torch.nn.Linear(8, 8)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(12):
    optimizer.zero_grad()
    model(torch.ones(2, 8)).sum().backward()
    optimizer.step()
if dist.get_rank() == 1:
    os._exit(int(sys.argv[1]))
time.sleep(1)
