"""A training loop whose batches come from a function of another file, and are prepared in an annotation."""

import os
import time

import torch
import torch.distributed as dist
from batches import get_batch  # type: ignore[import-not-found]  # the file beside this one
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.profiler import record_function


def main() -> None:
    torch.set_num_threads(1)
    model: nn.Module = nn.Linear(8, 8)
    several = int(os.environ.get("WORLD_SIZE", "1")) > 1
    if several:
        dist.init_process_group("gloo")
        model = DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(8):
        batch = get_batch()
        with record_function("data_preprocessing"):
            time.sleep(0.01)
        optimizer.zero_grad()
        model(batch).sum().backward()
        optimizer.step()
    if several:
        del model, optimizer
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
