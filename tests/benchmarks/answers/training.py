"""What the scripts beside it train: a classifier of small images, in one process or with DistributedDataParallel.

`python augmentation.py` trains with the slow line, `python augmentation.py --mended` without it.
"""

import os
import sys
from collections.abc import Iterable
from typing import Any, Final

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, DistributedSampler

STEPS: Final = 40
BATCH: Final = 32
SHAPE: Final = (3, 32, 32)
MENDED: Final = "--mended" in sys.argv
RANKS: Final = int(os.environ.get("WORLD_SIZE", "1"))


def make_model() -> nn.Module:
    """Return the model, on several ranks with its gradients reduced."""
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = nn.Sequential(
        *(nn.Conv2d(3, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(4)),
        *(nn.Flatten(), nn.Linear(512, 10)),
    )
    if RANKS == 1:
        return model
    torch.distributed.init_process_group("gloo")
    return nn.parallel.DistributedDataParallel(model)


class Images(Dataset[tuple[torch.Tensor, int]]):
    """Random images with labels."""

    def __init__(self) -> None:
        self.images = torch.rand(RANKS * BATCH * STEPS, *SHAPE)

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        return self.images[index], index % 10


def load(data: Images, **options: Any) -> Iterable[tuple[torch.Tensor, torch.Tensor]]:
    """Return the batches of this rank."""
    return DataLoader(data, batch_size=BATCH, sampler=DistributedSampler(data) if RANKS > 1 else None, **options)
