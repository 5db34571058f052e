"""Train a workload at its default batch in a plain loop, and print what malloc has given out at an interval of steps.

Usage: python -m tests.support.processes.soaked_training WORKLOAD STEPS EVERY [--loop FOLDER] [--schedule SCHEDULE]
    [--skip-products]

Without `--loop` it is a script that knows nothing of perfkit. With it the loop is in `perfkit.profile` with a schedule,
else in `perfkit.monitor`. Each rank prints `heap RANK STEP BYTES RESIDENT` on stderr.

`--skip-products` replaces the arithmetic of matrix products by zeros of the same shape: three quarters of a step of
`transformer` are products, which allocate nothing but their results. All else, allocations included, is real.
"""

import argparse
import contextlib
import os
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader

import perfkit
from perfkit.options.run import RunConfig
from perfkit_workloads import WORKLOADS
from perfkit_workloads.base import Workload
from tests.support.processes.heap_of_run import heap_bytes


class _Samples(torch.utils.data.Dataset[dict[str, Tensor]]):
    """All samples of a workload in memory."""

    def __init__(self, workload: Workload[Any]) -> None:
        spec = workload.data_spec(seed=0)
        arrays = workload.generate(spec, 0, spec.samples)
        self.fields = {name: torch.from_numpy(array) for name, array in arrays.items()}
        self.count = spec.samples

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> dict[str, Tensor]:
        return {name: values[index] for name, values in self.fields.items()}


def skip_products() -> torch.library.Library:
    """Let matrix products return zeros; they hold while the returned object lives."""
    library = torch.library.Library("aten", "IMPL")  # type: ignore[no-untyped-call]

    def mm(left: Tensor, right: Tensor) -> Tensor:
        return left.new_zeros(left.shape[0], right.shape[1])

    def addmm(_added: Tensor, left: Tensor, right: Tensor, **_scales: float) -> Tensor:
        return left.new_zeros(left.shape[0], right.shape[1])

    def bmm(left: Tensor, right: Tensor) -> Tensor:
        return left.new_zeros(left.shape[0], left.shape[1], right.shape[2])

    for name, function in {"mm": mm, "addmm": addmm, "bmm": bmm}.items():
        library.impl(name, function, "CPU")  # type: ignore[no-untyped-call]
    return library


def resident_bytes() -> int:
    """Return the resident memory of this process."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def batches(loader: DataLoader[dict[str, Tensor]]) -> Iterator[Mapping[str, Tensor]]:
    """Repeat the data set for ever."""
    while True:
        yield from loader


def train(arguments: argparse.Namespace, session: Any) -> None:
    """Take the steps; `session` is what perfkit's own loop has, or None in a script."""
    rank, ranks = dist.get_rank(), dist.get_world_size()
    workload = WORKLOADS.load(arguments.workload)
    built = workload(workload.Config(**_own_preset(workload)))
    torch.manual_seed(0)
    model: nn.Module = built.build()
    if ranks > 1:
        model = DistributedDataParallel(model)
    optimizer = built.optimization(model, world_size=ranks, total_steps=arguments.steps, device_type="cpu").optimizer
    loader = DataLoader(_Samples(built), batch_size=RunConfig().batch_size, shuffle=True, drop_last=True)
    source = batches(loader)
    for number in range(1, arguments.steps + 1):
        loss = built.loss(model, next(source))
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        if session is not None:
            session.step(loss)
        if number % arguments.every == 0:
            # In one write: the lines of two ranks would run into each other.
            os.write(sys.stderr.fileno(), f"heap {rank} {number} {heap_bytes()} {resident_bytes()}\n".encode())


def _own_preset(workload: type[Workload[Any]]) -> dict[str, Any]:
    preset = workload.PRESETS[workload.DEFAULT_PRESET]
    return {name: value for name, value in preset.items() if name in workload.Config.__struct_fields__}


def main() -> None:
    """Join the group that a launcher gave, or be alone; train."""
    parser = argparse.ArgumentParser()
    parser.add_argument("workload")
    parser.add_argument("steps", type=int)
    parser.add_argument("every", type=int)
    parser.add_argument("--loop")
    parser.add_argument("--schedule")
    parser.add_argument("--skip-products", action="store_true")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    for name, alone in {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0"}.items():
        os.environ.setdefault(name, alone)
    dist.init_process_group("gloo")
    skipped = skip_products() if arguments.skip_products else None
    with contextlib.ExitStack() as stack:
        session = None
        if arguments.loop and arguments.schedule:
            session = stack.enter_context(perfkit.profile(arguments.loop, schedule=arguments.schedule))
        elif arguments.loop:
            session = stack.enter_context(perfkit.monitor(arguments.loop))
        train(arguments, session)
    del skipped
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
