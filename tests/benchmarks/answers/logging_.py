"""Logs each value of a gradient; mended: its norm."""

import logging
import os
from typing import Final

import torch
from torch import nn

from training import MENDED, Images, load, make_model

logger: Final = logging.getLogger("train")
logger.addHandler(logging.FileHandler(os.devnull))
logger.setLevel(logging.DEBUG)


def log_gradient(gradient: torch.Tensor) -> None:
    for place, value in enumerate(gradient[:2].flatten().tolist()):
        logger.debug("gradient %d is %.6f", place, value)


def log_norm(gradient: torch.Tensor) -> None:
    logger.debug("gradient has a norm of %.6f", gradient.norm())


def main() -> None:
    model = make_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    *_, weight, _ = model.parameters()
    for images, labels in load(Images()):
        loss = nn.functional.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        assert weight.grad is not None
        (log_norm if MENDED else log_gradient)(weight.grad)


if __name__ == "__main__":
    main()
