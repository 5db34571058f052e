"""`perfkit.plan`: a plan from Python."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from perfkit.planning.formulas.step_time import Rates
from perfkit.planning.hardware import find_hardware
from perfkit.planning.own_model import locate, plan_own
from perfkit.planning.planner import RESERVE, Request
from perfkit.planning.precision import PRECISIONS
from perfkit.planning.refine import check_precision
from perfkit.planning.shape import Shape
from perfkit.planning.traced.messages import OwnModule
from perfkit.schema.plan import Plan


def plan(
    module_fn: Callable[[], Any],
    batch_fn: Callable[[], Any],
    *,
    ranks: int = 1,
    device: str | None = None,
    cluster: str | None = None,
    device_table: Path | None = None,
    precision: str = "float32",
    checkpoint_activations: bool = False,
    rates: Rates | None = None,
    reserve: float = RESERVE,
    tokens: float | None = None,
) -> Plan:
    """Return what training a module needs for every data-parallel strategy; a step is traced on fake tensors.

    Args:
        module_fn: Returns the module; called in another process, so that it must be at the top of a file.
        batch_fn: Returns the tensors of one rank's step: a tensor, several, or a dict of arguments. The first axis of
            the first is the number of samples.
        ranks: Number of ranks.
        device: Its short name, or torch's.
        cluster: Name of a cluster, instead.
        device_table: TOML file with more devices.
        precision: float32, bfloat16 or float16.
        checkpoint_activations: Whether layers (the largest `ModuleList`) are computed again.
        rates: Efficiencies and latency; None assumes them.
        reserve: Share of the need that the allocator wastes.
        tokens: Samples to train on in total, for device-hours.

    Raises:
        UsageError: A function or an option is invalid, or the step fails.
        LaunchEnvironmentError: The tracing process died.
    """
    check_precision(precision)
    path, name = locate(module_fn)
    batch_path, batch_name = locate(batch_fn)
    own = OwnModule(path=path, function=name, batch_path=batch_path, batch_function=batch_name)
    found = find_hardware(PRECISIONS[precision], device=device, cluster=cluster, device_table=device_table)
    return plan_own(
        own,
        Request(
            shape=Shape(name=name, tensors=(), are_whole=True),
            ranks=ranks,
            global_batch=ranks,
            precision=precision,
            device=found,
            rates=rates or Rates(),
            reserve=reserve,
            tokens=tokens,
            checkpointing="full" if checkpoint_activations else "none",
        ),
    )
