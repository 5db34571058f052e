"""Adds up a learning rate's whole warm-up in each step; mended: by its closed form."""

import torch
from torch import nn

from training import MENDED, Images, load, make_model


class Warmup(torch.optim.lr_scheduler.LRScheduler):
    steps = 200_000

    def get_lr(self) -> list[float | torch.Tensor]:
        if MENDED:
            return [base * (self.steps + 1) / self.steps / 2 for base in self.base_lrs]
        return [base * sum(k / self.steps for k in range(1, self.steps + 1)) / self.steps for base in self.base_lrs]


def main() -> None:
    model = make_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    scheduler = Warmup(optimizer)
    for images, labels in load(Images()):
        loss = nn.functional.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        scheduler.step()


if __name__ == "__main__":
    main()
