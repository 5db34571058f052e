"""A script that does not use perfkit: torch's 1F1B on two stages, each with DDP over two replicas, on gloo."""

from typing import Any

import torch
import torch.distributed as dist
from torch import nn

STEPS, BATCHES = 6, 4


def train() -> None:
    """Train for some steps on a named mesh; each ends with the sum of squared gradients and that of the losses."""
    # Here, because tests import this module for its numbers, and these take seconds to import.
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.pipelining import PipelineStage, Schedule1F1B
    from torch.nn.parallel import DistributedDataParallel

    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("pp", "dp"))
    place, line = mesh["pp"].get_local_rank(), mesh["pp"].get_group()
    # Each action takes a millisecond or more: clocks of processes tell the order.
    layer = nn.Sequential(*(nn.Linear(256, 256) for _ in range(4)))
    wrapped = DistributedDataParallel(layer, process_group=mesh["dp"].get_group())
    stage = PipelineStage(wrapped, place, 2, torch.device("cpu"), group=line)
    schedule = Schedule1F1B(stage, BATCHES, loss_fn=nn.MSELoss())
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.01)
    x = torch.randn(64 * BATCHES, 256)
    for _ in range(STEPS):
        optimizer.zero_grad()
        losses: list[torch.Tensor] = []
        given: dict[str, Any] = {"target": x, "losses": losses} if place else {}
        schedule.step(*([] if place else [x]), **given)
        squares = torch.stack([(p.grad**2).sum() for p in layer.parameters() if p.grad is not None]).sum()
        dist.all_reduce(squares, group=line)
        dist.all_reduce(torch.stack([loss.detach() for loss in losses]).sum() if losses else torch.zeros(()))
        optimizer.step()


if __name__ == "__main__":
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    train()
    dist.barrier()
    dist.destroy_process_group()
