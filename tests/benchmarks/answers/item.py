"""Looks for NaN value by value; mended: with one operator per layer."""

import math

import torch
from torch import nn

from training import MENDED, Images, load, make_model


def weights_of(model: nn.Module) -> list[torch.Tensor]:
    return [part.weight for part in model.modules() if isinstance(part, nn.Conv2d)]


def check_weights(model: nn.Module) -> None:
    for weight in weights_of(model):
        for value in weight.flatten():
            if math.isnan(value.item()):
                raise ValueError("not a number")


def check_quickly(model: nn.Module) -> None:
    if any(bool(weight.isnan().any()) for weight in weights_of(model)):
        raise ValueError("not a number")


def main() -> None:
    model = make_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for images, labels in load(Images()):
        loss = nn.functional.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        (check_quickly if MENDED else check_weights)(model)


if __name__ == "__main__":
    main()
