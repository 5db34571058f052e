"""A script for two ranks whose delays are known: `python trained_script.py FOLDER`."""

import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset

STEPS = 12
DELAY_S = 1.0
LOADS_LATE, COMPUTES_LATE, SAVES, SYNCHRONIZES = 7, 9, 10, 11


class Samples(Dataset[torch.Tensor]):
    def __len__(self) -> int:
        return STEPS * 4

    def __getitem__(self, item: int) -> torch.Tensor:
        if item == 4 * LOADS_LATE and dist.get_rank() == 1:
            time.sleep(DELAY_S)
        return torch.full((32,), item / 10)


class Slow:
    def __reduce__(self) -> tuple[type[int], tuple[int]]:
        time.sleep(DELAY_S)
        return int, (1,)


def main(folder: Path) -> None:
    dist.init_process_group("gloo")
    torch.manual_seed(1)
    model = DistributedDataParallel(torch.nn.Sequential(torch.nn.Linear(32, 32), torch.nn.Dropout(), torch.nn.ReLU()))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    late = dist.get_rank() == 1
    for step, batch in enumerate(DataLoader(Samples(), batch_size=4)):
        output = model(batch)
        if step == COMPUTES_LATE and late:
            time.sleep(DELAY_S)
        loss = output.square().mean()
        loss.backward()
        if step == SYNCHRONIZES:
            if late:
                time.sleep(DELAY_S)
            dist.barrier()
        if step == SAVES:
            torch.save(Slow(), folder / f"checkpoint-{dist.get_rank()}.pt")
        optimizer.step()
        optimizer.zero_grad()
    total = sum(parameter.double().sum().item() for parameter in model.parameters())
    print(f"rank {dist.get_rank()}: {total!r} {torch.rand(1).item()!r} {loss.item()!r}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
