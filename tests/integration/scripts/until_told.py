"""Trains until a file exists, as a rank with DDP, and prints what chance and training have made of it."""

import argparse
import os
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--until", type=Path)
    parser.add_argument("--steps", type=int, default=20_000)
    parser.add_argument("--sleep", type=float, default=0.005)
    parser.add_argument("--late-from", type=int, help="rank 1 takes 150 ms longer from this step on")
    parser.add_argument("--exit-code", type=int, default=0)
    args = parser.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model: nn.Module = nn.Linear(64, 64)
    is_rank = args.until is not None and "RANK" in os.environ
    if is_rank:
        dist.init_process_group("gloo")
        model = nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in range(args.steps):
        if args.late_from is not None and step >= args.late_from and dist.get_rank() == 1:
            time.sleep(0.15)
        optimizer.zero_grad()
        model(torch.randn(32, 64)).square().mean().backward()
        optimizer.step()
        time.sleep(args.sleep)
        told = torch.tensor(float(args.until is not None and args.until.exists()))
        if is_rank:
            dist.all_reduce(told)
        if told:
            break
    print(sum(parameter.sum().item() for parameter in model.parameters()), torch.rand(1).item())
    if is_rank:
        dist.destroy_process_group()
    return int(args.exit_code)


sys.exit(main())
