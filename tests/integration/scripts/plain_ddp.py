"""A plain DDP training script, as people write them: it knows nothing of perfkit."""

import argparse
import gc
import os

import torch
import torch.distributed as dist
from model import Net  # type: ignore[import-not-found]  # the file beside this one
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument("--init", default="env://")
    args = parser.parse_args()
    rank = int(os.environ.get("RANK", os.environ.get("PMI_RANK", "0")))
    world_size = int(os.environ.get("WORLD_SIZE", os.environ.get("PMI_SIZE", "1")))
    if world_size > 1:
        dist.init_process_group("gloo", init_method=args.init, rank=rank, world_size=world_size)
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model: nn.Module = Net(args.width)
    if world_size > 1:
        model = DistributedDataParallel(model)
    samples = 16 * args.steps * world_size
    data = TensorDataset(torch.randn(samples, args.width), torch.randint(0, 10, (samples,)))
    sampler: DistributedSampler[int] = DistributedSampler(data, world_size, rank)
    loader = DataLoader(data, batch_size=16, sampler=sampler, num_workers=args.workers)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    loss_of = nn.CrossEntropyLoss()
    total = 0.0
    for inputs, targets in loader:
        optimizer.zero_grad()
        loss = loss_of(model(inputs), targets)
        loss.backward()
        optimizer.step()
        total += loss.item()
    if rank == 0:
        print(f"mean loss {total / len(loader):.3f} after {len(loader)} steps")
    if world_size > 1:
        # Else, by itself too, the script now and then aborts: a thread of gloo's must not outlive the interpreter.
        del model, optimizer
        gc.collect()
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
