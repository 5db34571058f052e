"""Trains a workload in several ways, one after the other, in one group of processes; prints each one's losses as JSON.

Arguments: number of ranks, then the arguments of `perfkit run` of each case as one text. A case that begins with
`unreduced NAME |` has the gradient of that parameter left as it is on rank 0.
"""

import gc
import importlib
import json
import os
import sys
import tempfile
import traceback
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from msgspec import to_builtins
from torch import nn

from perfkit.cli.recording.run_options import parse_job
from perfkit.errors import PerfkitError
from perfkit.record.distributed.rank_group import ProcessRankGroup
from perfkit.record.training import worker
from perfkit.record.training.trainer import Trainer

LATER = "torch._dynamo", "torch.distributed.fsdp", "torch.distributed.optim", "torch.distributed.pipelining"

EXTRAS = {"classify": "transformers.models.distilbert.modeling_distilbert", "deepspeed": "deepspeed"}


class Steps:
    """The part of a recording session that a trainer uses."""

    recording = False

    def __init__(self) -> None:
        self.losses: list[float | None] = []

    @property
    def steps(self) -> int:
        return len(self.losses)

    def begin(self) -> None:
        pass

    def batches(self, loader: Iterable[Any]) -> Iterator[Any]:
        yield from loader

    @contextmanager
    def phase(self, _: str) -> Iterator[None]:
        yield

    def step(self, loss: torch.Tensor | None) -> None:
        self.losses.append(None if loss is None else float(loss))


def train(case: str) -> dict[str, Any]:
    """Train one case and return its losses by rank, and what the ranks hold."""
    words = case.split()
    unreduced = words[1] if words[0] == "unreduced" else None
    job = parse_job(words[3:] if unreduced else words)
    ranks = ProcessRankGroup(torch.device("cpu"))
    data = worker._open_input(job, ranks, job.workload.data_spec(job.run.seed), [None])
    model = worker._build(job, ranks, torch.device("cpu"))
    trainer = Trainer(job.workload, job.run, ranks, model, data.steps)
    if unreduced and ranks.rank == 0:
        leave_unreduced(trainer, unreduced)
    gathered = watch_gathered(job.workload.layers(model), model) if job.run.dp in ("zero2", "zero3") else [0]
    session = Steps()
    trainer.train(data, session, lambda _: None)  # type: ignore[arg-type]
    try:
        checksum, error = trainer.checksum(ranks), None
    except PerfkitError as caught:
        checksum, error = None, str(caught)
    memory = trainer.memory
    assert memory is not None
    held = [memory.parameters_bytes, memory.gradients_bytes, memory.optimizer_bytes]
    own = {"losses": session.losses, "memory": held, "gathered": max(gathered, default=0)}
    by_rank = ranks.all_gather(own)
    experts = [] if trainer.experts is None else trainer.experts.load(ranks)
    ranks.close()
    return {"case": case, "checksum": checksum, "error": error, "ranks": by_rank, "experts": to_builtins(experts)}


def watch_gathered(layers: list[nn.Module], model: nn.Module) -> list[int]:
    """Return a list that gets, in each layer's forward pass, the bytes of parameters that are whole on this rank."""
    found: list[int] = []

    def note(*_: object) -> None:
        found.append(sum(one.nbytes for one in model.parameters() if not hasattr(one, "to_local")))

    for layer in layers:
        # The last module in it: when the layer's own hooks run, its parameters are divided again.
        [*layer.children()][-1].register_forward_hook(note)
    return found


def leave_unreduced(trainer: Trainer, name: str) -> None:
    """Let the optimizer see this rank's own gradient of a parameter, as if it were left out of the reduction."""
    parameter = dict(trainer.named_parameters())[name]
    own: list[torch.Tensor] = []
    # The first gradient that reaches the parameter is this rank's; what is reduced replaces it later.
    parameter.register_hook(lambda gradient: own.append(gradient.detach().clone()))  # type: ignore[no-untyped-call]
    optimizer = trainer.optimizer

    def restore(*_: object) -> None:
        assert parameter.grad is not None
        parameter.grad.copy_(torch.stack(own).sum(0))
        own.clear()

    optimizer.register_step_pre_hook(restore)


def run_rank(rank: int, world_size: int, store: str, cases: list[str]) -> None:
    os.environ |= {"RANK": str(rank), "WORLD_SIZE": str(world_size)}
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=world_size)
    for case in cases:
        result = train(case)
        if rank == 0:
            sys.stdout.write(json.dumps(result) + "\n")
            sys.stdout.flush()
    dist.barrier()


def main(world_size: int, cases: list[str]) -> int:
    """Start the ranks by forking: torch, with what training imports later, is imported once."""
    os.environ.setdefault("DS_ACCELERATOR", "cpu")
    used = {package for word, package in EXTRAS.items() if any(word in case for case in cases)}
    for name in (*LATER, *used):
        importlib.import_module(name)
    gc.freeze()  # else collections of the ranks go through, and copy, all that was imported
    with tempfile.TemporaryDirectory() as folder:
        children = []
        for rank in range(world_size):
            if (child := os.fork()) == 0:
                try:
                    run_rank(rank, world_size, str(Path(folder) / "store"), cases)
                except BaseException:  # noqa: BLE001  # a fork must never return into the parent's code
                    traceback.print_exc()
                    os._exit(1)
                os._exit(0)
            children.append(child)
        return max(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children)


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), sys.argv[2:]))
