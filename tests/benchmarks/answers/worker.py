"""Fetches each image from far away, in a loader's worker; mended: from a copy that is near."""

import time

import torch
from torch import nn

from training import MENDED, Images, load, make_model


class Remote(Images):
    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        if not MENDED:
            fetch_remote()
        return super().__getitem__(index)


def fetch_remote() -> None:
    time.sleep(0.0012)


def main() -> None:
    model = make_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for images, labels in load(Remote(), num_workers=1):
        loss = nn.functional.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()


if __name__ == "__main__":
    main()
