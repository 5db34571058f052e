"""The command that runs a layout, checked by perfkit's own options before it is shown."""

from collections.abc import Mapping
from shlex import quote
from typing import Any, Final

from msgspec import Struct

from perfkit.capture.config import RunConfig
from perfkit.capture.training.strategies.checks import check_parallelism
from perfkit.errors import UsageError
from perfkit.planning.layout import Layout
from workloads.base import Workload

_DEEPSPEED: Final = {"ddp": 0, "zero1": 1, "zero2": 2, "zero3": 3}


class Command(Struct, frozen=True, kw_only=True):
    """A command, or why there is none."""

    text: str | None = None
    refused: str | None = None


def command_of(
    workload: Workload[Any], options: Mapping[str, Any], layout: Layout, precision: str, batch: int, *, per_host: int
) -> Command:
    """Return the command that trains `workload` in this layout.

    Args:
        workload: What to train.
        options: Its options that differ from the defaults, by name.
        layout: How it is shared.
        precision: Name of a precision.
        batch: Samples per rank, or group of ranks that share them.
        per_host: Ranks that one host can have; of more, a launcher starts them.
    """
    if layout.checkpointing == "selective":
        return Command(refused="`perfkit run` checkpoints whole layers")
    run, problem = _run_options(layout, precision, batch)
    if problem is not None:
        return Command(refused=problem)
    try:
        config = RunConfig(**run)
        config.check_world(layout.ranks)
        check_parallelism(workload, config)
    except UsageError as error:
        return Command(refused=str(error))
    shown = {**options, **run}
    flags = " ".join(_flag(name, value) for name, value in shown.items())
    ranks = f" -n {layout.ranks}" if layout.ranks <= per_host and layout.ranks > 1 else ""
    launcher = f"mpiexec -n {layout.ranks} " if layout.ranks > per_host else ""
    return Command(text=f"{launcher}perfkit run {workload.name}{ranks} {flags}")


def _run_options(layout: Layout, precision: str, batch: int) -> tuple[dict[str, Any], str | None]:
    """Return the options of the run, and why it does not have any."""
    options: dict[str, Any] = {"batch_size": batch}
    if precision == "half":
        return {}, "`perfkit run` keeps the optimizer's state in float32"
    if precision == "mixed":
        if layout.dp not in _DEEPSPEED or layout.mesh.keys() != {"dp"}:
            return {}, "`perfkit run` keeps parameters in 16 bits with --dp deepspeed only"
        options |= {"dp": "deepspeed", "zero": _DEEPSPEED[layout.dp], "precision": "bfloat16"}
    else:
        options |= {"mesh": ",".join(f"{name}={size}" for name, size in layout.mesh.items()), "dp": layout.dp}
        options |= {"precision": precision} if precision != "float32" else {}
    options |= {"sequence_parallel": True} if layout.sequence_parallel else {}
    options |= {"loss_parallel": True} if layout.loss_parallel else {}
    options |= {"micro_batches": layout.micro_batches} if layout.pp > 1 else {}
    options |= {"checkpoint_activations": True} if layout.checkpointing == "full" else {}
    return options, None


def _flag(name: str, value: Any) -> str:
    option = name.replace("_", "-")
    if isinstance(value, bool):
        return f"--{option}" if value else f"--no-{option}"
    return f"--{option} {quote(str(value))}"
