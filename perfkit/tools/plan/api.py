"""`perfkit.plan`: a plan from Python, for a module of the user's own."""

import inspect
import re
from collections.abc import Callable
from math import prod
from pathlib import Path
from typing import Any, Final

from msgspec.structs import replace

from perfkit.errors import UsageError
from perfkit.options.plan import RESERVE
from perfkit.records.plan import Plan
from perfkit.tools.plan.choice import with_layouts
from perfkit.tools.plan.formulas.step_time import Rates
from perfkit.tools.plan.hardware import find_hardware
from perfkit.tools.plan.planner import Request, layouts_of, make_plan
from perfkit.tools.plan.precision import PRECISIONS
from perfkit.tools.plan.refine import check_precision, trace_request, with_trace
from perfkit.tools.plan.shape import Shape
from perfkit.tools.plan.traced.launch import InputSpec, OwnModule, TraceAnswer, trace

DTYPES: Final = ("float32", "float16", "bfloat16", "int64", "int32", "bool")
_INPUT = re.compile(r"(\d+(?:,\d+)*)(?::(\w+))?")
_MOST_ENTRIES: Final = 2**40


def parse_inputs(texts: list[str]) -> tuple[InputSpec, ...]:
    """Return the tensors that texts such as `4,512:int64` describe; without a type, float32.

    Raises:
        UsageError: A text is none, or describes no tensor.
    """
    return tuple(_parse_input(text) for text in texts)


def _parse_input(text: str) -> InputSpec:
    match = _INPUT.fullmatch(text.replace(" ", ""))
    if match is None or (match[2] or "float32") not in DTYPES:
        raise UsageError(f"--input {text}: write it as 4,512:int64, with one of {', '.join(DTYPES)}")
    shape = tuple(map(int, match[1].split(",")))
    if not 0 < prod(shape) <= _MOST_ENTRIES or len(shape) > 8:
        raise UsageError(f"--input {text}: a tensor of 1 to {_MOST_ENTRIES:,} entries is needed")
    return InputSpec(shape, match[2] or "float32")


def own_module(text: str, inputs: list[str], batch: str | None) -> OwnModule:
    """Return the module that `FILE.py:FUNCTION` names, with what it is called with.

    Raises:
        UsageError: The file does not exist, or there is no description of the inputs.
    """
    path, _, function = text.rpartition(":")
    if not Path(path).is_file():
        raise UsageError(f"{path}: no such file")
    if bool(inputs) == (batch is not None):
        raise UsageError(f"{text}: its arguments are given by --input or by --batch FUNCTION: use one of them")
    return OwnModule(path=path, function=function, batch_function=batch, inputs=parse_inputs(inputs))


def locate(function: Callable[..., Any]) -> tuple[str, str]:
    """Return file and name of a function, so that another process can find it.

    Raises:
        UsageError: It is not defined at the top level of a file.
    """
    name = getattr(function, "__qualname__", "")
    try:
        path = inspect.getsourcefile(function)
    except TypeError:
        path = None
    if path is None or not Path(path).is_file() or not name.isidentifier():
        raise UsageError(
            "perfkit.plan: the step is traced in another process: define both functions at the top of a file"
        )
    return path, name


def plan_own(own: OwnModule, request: Request) -> Plan:
    """Return the plan for a module: DDP, ZeRO and hybrid sharding, each traced.

    Raises:
        UsageError: The module cannot be built, or its step fails.
        LaunchEnvironmentError: The tracing process died.
    """
    check_precision(request.precision)
    layouts = [one for one in layouts_of(request) if one.dp != "zero1"]
    answer = trace(trace_request(request, layouts, own))
    known = _with_model(own, request, answer)
    plan = make_plan(known)
    steps = dict(zip(layouts, answer.steps, strict=True))
    # ZeRO-1 computes as DDP does.
    planned = [
        with_trace(one, known, layout, steps[replace(layout, dp="ddp") if layout.dp == "zero1" else layout])
        for one, layout in zip(plan.layouts, layouts_of(known), strict=True)
    ]
    return with_layouts(plan, planned)


def _with_model(own: OwnModule, request: Request, answer: TraceAnswer) -> Request:
    model = answer.model
    assert model is not None  # noqa: S101  # the child describes every module of the user's own
    shape = Shape(
        name=own.function,
        tensors=tuple(model.tensors),
        are_whole=True,
        layers=max(1, model.layers),
        flops_per_sample=model.flops / max(1, model.samples),
    )
    return replace(request, shape=shape, global_batch=request.ranks * model.samples)


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
