"""A DDP script that starts its second rank by running itself again: runs_itself.py [fail]."""

import os
import socket
import subprocess
import sys

import torch
import torch.distributed as dist

rank = int(os.environ.get("LOCAL_RANK", "0"))
if rank == 0:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(listener.getsockname()[1])}
    other = subprocess.Popen(
        [sys.executable, os.path.abspath(sys.argv[0]), *sys.argv[1:]], env={**os.environ, "LOCAL_RANK": "1"}
    )
dist.init_process_group("gloo", rank=rank, world_size=2)
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(8, 8))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(10):
    optimizer.zero_grad()
    model(torch.ones(2, 8)).sum().backward()
    optimizer.step()
dist.destroy_process_group()
if rank == 1 and "fail" in sys.argv:
    sys.exit(7)
if rank == 0:
    print("trained", other.wait())
