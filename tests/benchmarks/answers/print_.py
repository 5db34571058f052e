"""Prints each value of a gradient; mended: its norm."""

import torch
from torch import nn

from training import MENDED, Images, load, make_model


def show_gradient(gradient: torch.Tensor) -> None:
    for place, value in enumerate(gradient[:6].flatten().tolist()):
        print("gradient", place, "is", value, flush=True)


def show_norm(gradient: torch.Tensor) -> None:
    print("gradient has a norm of", float(gradient.norm()), flush=True)


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
        (show_norm if MENDED else show_gradient)(weight.grad)


if __name__ == "__main__":
    main()
