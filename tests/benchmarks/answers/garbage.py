"""Collects garbage in each step, beside many objects; mended: Python does by itself."""

import gc
from typing import Final

import torch
from torch import nn

from training import MENDED, Images, load, make_model

KEPT: Final = [[number] for number in range(100_000)]


def clean_up() -> None:
    gc.collect()


def main() -> None:
    model = make_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    gc.collect()
    if MENDED:
        gc.freeze()
    for images, labels in load(Images()):
        loss = nn.functional.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        if not MENDED:
            clean_up()


if __name__ == "__main__":
    main()
