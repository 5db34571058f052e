"""A module for tests of plans, in a file that a tracing process can run."""

import torch
from torch import Tensor, nn

WIDTH, LAYERS, SAMPLES = 64, 3, 8


class Net(nn.Module):
    """Linear layers in a list, and one after it."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(LAYERS))
        self.out = nn.Linear(WIDTH, 10)

    def forward(self, x: Tensor) -> Tensor:
        """Return 10 numbers per sample."""
        for layer in self.layers:
            x = torch.relu(layer(x))
        out: Tensor = self.out(x)
        return out


def build() -> nn.Module:
    """Return the module."""
    return Net()


def batch() -> Tensor:
    """Return what it is called with."""
    return torch.zeros(SAMPLES, WIDTH)


def number() -> int:
    """Return what is no module."""
    return 3


def broken() -> nn.Module:
    """Raise."""
    raise ValueError("two\nlines")
