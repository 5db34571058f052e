"""Watches the activations of a layer in Python; mended: by torch."""

from typing import Final

import torch
from torch import nn

from training import MENDED, Images, load, make_model

medians: Final[list[float]] = []


def watch_activations(_module: nn.Module, _inputs: object, output: torch.Tensor) -> None:
    values = sorted(output[:6].flatten().tolist(), key=abs)
    medians.append(values[len(values) // 2])


def watch_quickly(_module: nn.Module, _inputs: object, output: torch.Tensor) -> None:
    medians.append(float(output[:6].detach().abs().mean()))


def main() -> None:
    model = make_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    next(part for part in model.modules() if isinstance(part, nn.MaxPool2d)).register_forward_hook(
        watch_quickly if MENDED else watch_activations
    )
    for images, labels in load(Images()):
        loss = nn.functional.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()


if __name__ == "__main__":
    main()
