"""A plain DDP script that trains for long; each rank starts a process of its own, and ignores what becomes of it."""

import subprocess
import sys

import torch
import torch.distributed as dist

subprocess.Popen([sys.executable, "-c", "import time; time.sleep(1000)"])
dist.init_process_group("gloo")
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(8, 8))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(1_000_000):
    optimizer.zero_grad()
    model(torch.ones(2, 8)).sum().backward()
    optimizer.step()
