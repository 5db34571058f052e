"""A plain DDP script in which the last rank does something else in step 4: what, is the first argument."""

import os
import re
import sys
import time
from collections.abc import Callable
from datetime import timedelta

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, Dataset

HOW = sys.argv[1]
RANK = int(os.environ["RANK"])
ODD, BAD_STEP, BATCH = int(os.environ["WORLD_SIZE"]) - 1, 4, 4


class Samples(Dataset[torch.Tensor]):
    def __len__(self) -> int:
        return 16 * BATCH

    def __getitem__(self, index: int) -> torch.Tensor:
        if HOW == "loader" and RANK == ODD and index == BATCH * BAD_STEP:
            read_blocked_file()
        return torch.ones(8)


def read_blocked_file() -> None:
    time.sleep(3600)


def load_batch() -> None:
    time.sleep(3600)


def backtrack() -> None:
    re.match(r"(a+)+$", "a" * 60 + "b")  # which does not return, and holds Python's lock


def leave_out() -> None:
    try:
        raise ValueError("a bad batch")
    except ValueError:
        return


dist.init_process_group("gloo", timeout=timedelta(seconds=5 if HOW == "timeout" else 1800))
dp = dist.new_group(group_desc="dp")
dist.new_group(group_desc="tp")


OTHERWISE: dict[str, Callable[[], object]] = {
    "die": lambda: os._exit(1),
    "catch": leave_out,
    "lock": backtrack,
    "size": lambda: dist.all_reduce(torch.ones(2000), group=dp),
}


def sync_metrics(step: int) -> None:
    odd = step == BAD_STEP and RANK == ODD
    if odd and HOW in ("sleep", "timeout"):
        load_batch()
    if odd and HOW in OTHERWISE:
        OTHERWISE[HOW]()
        return
    dist.all_reduce(torch.ones(1000), group=dp)


torch.set_num_threads(1)
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(8, 8))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step, batch in enumerate(DataLoader(Samples(), batch_size=BATCH, num_workers=int(HOW == "loader"))):
    optimizer.zero_grad()
    if HOW == "first" and RANK == ODD:
        load_batch()
    model(batch).sum().backward()
    if HOW == "first update" and RANK == ODD:
        load_batch()
    optimizer.step()
    sync_metrics(step)
    if HOW == "slow" and step == BAD_STEP:
        time.sleep(30)
print("trained")
