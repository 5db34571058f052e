"""A loop of one's own in which rank 1 leaves out an all-reduce in one step; how it is recorded comes first."""

import os
import sys
import time
from typing import Any

import torch
import torch.distributed as dist

import perfkit

HOW, FOLDER, BAD_STEP = sys.argv[1], sys.argv[2], int(sys.argv[3])
OPTIONS: dict[str, Any] = {"hang_after": sys.argv[4], "on_hang": "end"}
RANK = int(os.environ.get("RANK", os.environ.get("PMI_RANK", "0")))


def leave_out() -> None:
    time.sleep(3600)


def train(recording: "perfkit.Session | perfkit.Recording") -> None:
    for step in range(20):
        if RANK == 1 and step == BAD_STEP:
            leave_out()
        dist.all_reduce(torch.ones(1000))
        recording.step()


if "MASTER_ADDR" in os.environ:
    dist.init_process_group("gloo")
else:
    dist.init_process_group("gloo", init_method=f"file://{FOLDER}.store", rank=RANK, world_size=2)
with getattr(perfkit, HOW)(FOLDER, **OPTIONS) as session:
    train(session)
print("trained")
