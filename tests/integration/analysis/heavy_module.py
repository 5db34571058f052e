"""Train a model on gloo ranks, one of whose modules multiplies large matrices, and only that one."""

import torch
import torch.distributed as dist
from torch import Tensor, nn

SIZE = 800  # so that the products last long beside everything else, also on a busy machine


class Light(nn.Module):
    """A small layer."""

    def __init__(self) -> None:
        """Make its parameters."""
        super().__init__()
        self.linear = nn.Linear(32, 32)

    def forward(self, values: Tensor) -> Tensor:
        """Return the layer's output."""
        return torch.relu(self.linear(values))


class Heavy(nn.Module):
    """Multiplies large matrices."""

    def __init__(self) -> None:
        """Make its parameters."""
        super().__init__()
        self.weight = nn.Parameter(torch.randn(SIZE, SIZE) / SIZE)

    def forward(self, values: Tensor) -> Tensor:
        """Return the input, a little larger."""
        product: Tensor = self.weight
        for _ in range(4):
            product = product @ self.weight
        return values + product.mean()


def main() -> None:
    """Train for a few steps."""
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    model = nn.parallel.DistributedDataParallel(nn.Sequential(Light(), Heavy(), Light()))
    optimizer = torch.optim.SGD(model.parameters())
    for _ in range(10):
        optimizer.zero_grad()
        model(torch.randn(8, 32)).square().mean().backward()
        optimizer.step()
    dist.destroy_process_group()


main()
