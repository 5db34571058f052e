"""A plain DDP script in which one rank fails: after it has joined the others, or before it imports torch at all."""

import os
import sys

how, rank = sys.argv[1], int(os.environ.get("RANK", "0"))
if rank == 1:
    if how == "early":
        raise ValueError("before torch")
    if how == "silent":
        os._exit(5)
elif how != "late":
    raise SystemExit

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402

dist.init_process_group("gloo")
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(8, 8))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(20):
    optimizer.zero_grad()
    model(torch.randn(4, 8)).sum().backward()
    optimizer.step()
    if rank == 1 and step == 4:
        raise RuntimeError("boom")
