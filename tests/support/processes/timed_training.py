"""A training script whose parts take known times: what `perfkit whatif` predicts can be done to it for real.

Usage: perfkit run tests/support/processes/timed_training.py -n 2 -- [--layers 4] [--forward-ms 8] ...

An operator computes for most of its time and sleeps for the rest, so that the machine's load matters little; gradients
are averaged for real, over gloo.
"""

import argparse
import os
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext

import torch
from torch import distributed, nn
from torch.nn.parallel import DistributedDataParallel
from torch.profiler import record_function
from torch.utils.data import DataLoader, IterableDataset

from perfkit.record.training.gradient_averaging import average_gradients

_ROWS = 4


def _compute(seconds: float) -> None:
    """Use the processor for most of some time: what only slept would be waiting. The rest is for gloo's threads."""
    until = time.perf_counter() + seconds
    while (left := until - time.perf_counter()) > 0:
        pause = time.perf_counter() + min(left, 7e-4)
        while time.perf_counter() < pause:
            pass
        time.sleep(max(0.0, min(3e-4, until - time.perf_counter())))


def _operator(name: str) -> Callable[[torch.Tensor, float], torch.Tensor]:
    """Return an operator `timed::NAME` that takes as long as it is told."""

    def compute(inputs: torch.Tensor, seconds: float) -> torch.Tensor:
        _compute(seconds)
        return inputs.clone()

    return torch.library.custom_op(f"timed::{name}", compute, mutates_args=())


class _Timed(torch.autograd.Function):
    """Passes its input on, by one operator in each direction."""

    @staticmethod
    def forward(ctx, inputs, layer):  # type: ignore[no-untyped-def]
        ctx.layer = layer
        return layer.forwards(inputs, layer.forward_s)

    @staticmethod
    def backward(ctx, *gradients):  # type: ignore[no-untyped-def]
        return ctx.layer.backwards(gradients[0], ctx.layer.backward_s), None


class Layer(nn.Module):
    """A linear layer, and an operator of known duration in each direction."""

    def __init__(self, place: int, width: int, forward_s: float, backward_s: float) -> None:
        super().__init__()
        self.linear = nn.Linear(width, width)
        self.forwards, self.backwards = _operator(f"layer{place}"), _operator(f"layer{place}_backward")
        self.forward_s, self.backward_s = forward_s, backward_s

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        passed: torch.Tensor = _Timed.apply(self.linear(inputs), self)  # type: ignore[no-untyped-call]
        return passed


class Samples(IterableDataset[torch.Tensor]):
    """Batches that take a known time to load."""

    def __init__(self, width: int, seconds: float) -> None:
        self._width, self._seconds = width, seconds

    def __iter__(self) -> Iterator[torch.Tensor]:
        while True:
            time.sleep(self._seconds)
            yield torch.ones(_ROWS, self._width)


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=14)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--forward-ms", type=float, default=20)
    parser.add_argument("--backward-ms", type=float, default=30)
    parser.add_argument("--first-factor", type=float, default=1, help="of the times of the first two layers")
    parser.add_argument("--load-ms", type=float, default=20)
    parser.add_argument("--validate-ms", type=float, default=0, help="host work per step, in an annotation")
    parser.add_argument("--accumulate", type=int, default=1)
    parser.add_argument("--bucket-mb", type=float, default=25)
    parser.add_argument("--no-overlap", action="store_true")
    parser.add_argument("--no-averaging", action="store_true", help="without any collective")
    parser.add_argument("--slow-rank", type=int, default=-1)
    parser.add_argument("--slow-factor", type=float, default=1, help="of everything that the slow rank does")
    parser.add_argument("--slow-ms", type=float, default=0, help="added to the slow rank's last operator of backward")
    return parser.parse_args()


def main() -> None:
    given = options()
    torch.set_num_threads(1)
    distributed.init_process_group("gloo")
    slow = int(os.environ["RANK"]) == given.slow_rank
    unit_s = (given.slow_factor if slow else 1.0) / 1000
    layers = [
        Layer(place, given.width, given.forward_ms * unit_s, given.backward_ms * unit_s)
        for place in range(given.layers)
    ]
    for layer in layers[:2]:
        layer.forward_s, layer.backward_s = given.first_factor * layer.forward_s, given.first_factor * layer.backward_s
    if slow:
        layers[0].backward_s += given.slow_ms / 1000
    model = DistributedDataParallel(nn.Sequential(*layers), bucket_cap_mb=given.bucket_mb)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-9)
    batches = iter(DataLoader(Samples(given.width, given.load_ms * unit_s), batch_size=None))
    separate = given.no_overlap or given.no_averaging
    for _ in range(given.steps):
        optimizer.zero_grad()
        for micro_step in range(given.accumulate):
            last = micro_step == given.accumulate - 1
            inputs = next(batches)
            with nullcontext() if last and not separate else model.no_sync():
                model(inputs).sum().backward()
        if given.no_overlap:
            average_gradients(model.parameters(), given.bucket_mb)
        optimizer.step()
        if given.validate_ms:
            with record_function("validate"):
                time.sleep(given.validate_ms * unit_s)
    distributed.destroy_process_group()


if __name__ == "__main__":
    main()
