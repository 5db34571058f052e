"""A plain DDP script in which one rank leaves before the others, without an error: leaves.py HOW RANK STEP.

Or that rank has the launcher leave, by a signal; all ranks then wait for theirs.
"""

import os
import signal
import sys

import torch
import torch.distributed as dist

how, leaver, last = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])


def leave() -> None:
    if how == "vanish":
        os._exit(0)
    os.kill(os.getpid(), signal.SIGTERM if how == "end" else signal.SIGKILL)


def end_launcher(number: signal.Signals) -> None:
    dist.barrier()
    if dist.get_rank() == leaver:
        os.kill(os.getppid(), number)
    signal.pause()


dist.init_process_group("gloo")
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(8, 8))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(12):
    if how == "SIGHUP" and step == last:
        end_launcher(signal.SIGHUP)
    elif (dist.get_rank(), step) == (leaver, last):
        leave()
    optimizer.zero_grad()
    model(torch.ones(2, 8)).sum().backward()
    optimizer.step()
dist.destroy_process_group()
