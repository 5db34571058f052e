"""A script that does not use perfkit: torch's pipelines with stages that sleep, under torch's own profiler.

Arguments: number of micro-batches, schedules (`gpipe`, `1f1b`; with two stages per rank `interleaved`, `zero-bubble`
and `looped`) joined by commas, and a folder for a trace of each rank
in a sub-folder per schedule.
"""

import sys
import time
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.profiler import ProfilerActivity, profile, schedule

FORWARD_S, BACKWARD_S = 0.025, 0.05
STEPS, WARM = 5, 1


class Sleep(torch.autograd.Function):
    """Takes a known time in each direction, without a core."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:  # noqa: ARG004
        """Sleep."""
        time.sleep(FORWARD_S)
        return x.clone()

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:  # noqa: ARG004
        """Sleep longer."""
        time.sleep(BACKWARD_S)
        return gradient


class Layer(nn.Module):
    """The layer of one stage."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the output."""
        output: torch.Tensor = Sleep.apply(self.linear(x))  # type: ignore[no-untyped-call]
        return output


def train(name: str, batches: int, folder: Path) -> None:
    """Train for some steps."""
    # Here, because tests import this module for its times, and these take seconds to import.
    from torch.distributed import pipelining

    rank, ranks = dist.get_rank(), dist.get_world_size()
    schedules = {"gpipe": "GPipe", "1f1b": "1F1B", "interleaved": "Interleaved1F1B"}
    schedules |= {"zero-bubble": "InterleavedZeroBubble", "looped": "LoopedBFS"}
    make: Any = getattr(pipelining, f"Schedule{schedules[name]}")
    per_rank = 1 if name in ("gpipe", "1f1b") else 2
    layers = nn.ModuleList(Layer() for _ in range(per_rank))
    stages = [
        pipelining.PipelineStage(layer, rank + turn * ranks, per_rank * ranks, torch.device("cpu"))
        for turn, layer in enumerate(layers)
    ]
    made = make(stages if per_rank > 1 else stages[0], batches, loss_fn=nn.MSELoss())
    optimizer = torch.optim.SGD(layers.parameters(), lr=0.01)
    x = torch.randn(2 * batches, 8)
    given: dict[str, Any] = {"target": x} if rank == ranks - 1 else {}
    with recorded(folder / name / f"rank{rank}.json") as profiler:
        for _ in range(STEPS):
            optimizer.zero_grad()
            made.step(*([x] if rank == 0 else []), **given)
            optimizer.step()
            profiler.step()


def recorded(path: Path) -> profile:
    """Return a profiler that writes a trace."""
    path.parent.mkdir(parents=True, exist_ok=True)
    return profile(
        activities=[ProfilerActivity.CPU],
        schedule=schedule(wait=0, warmup=WARM, active=STEPS - WARM),
        on_trace_ready=lambda done: done.export_chrome_trace(str(path)),
    )


if __name__ == "__main__":
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    for which in sys.argv[2].split(","):
        train(which, int(sys.argv[1]), Path(sys.argv[3]))
    dist.barrier()
    dist.destroy_process_group()
