"""From the options of `perfkit plan` to a plan."""

from pathlib import Path
from typing import Final

from msgspec.structs import asdict, replace

from perfkit.base.parsing import parse_duration
from perfkit.errors import UsageError
from perfkit.options.plan import PlanOptions
from perfkit.records.plan import Plan, PlannedDevice
from perfkit.tools.plan.api import own_module, plan_own
from perfkit.tools.plan.check import check_run
from perfkit.tools.plan.formulas.step_time import EFFICIENCY, LATENCY_NS, LINK_EFFICIENCY, Rates
from perfkit.tools.plan.hardware import find_hardware
from perfkit.tools.plan.measured import measured_rates
from perfkit.tools.plan.models import Model, counted_model, gpt_model, preset_model, preset_names
from perfkit.tools.plan.planner import OFFLOADS, Request, make_plan
from perfkit.tools.plan.precision import PRECISIONS
from perfkit.tools.plan.presets import NAMES
from perfkit.tools.plan.refine import refine
from perfkit.tools.plan.shape import Shape

_DEFAULTS: Final = PlanOptions()


def plan_model(options: PlanOptions) -> Plan:
    """Return the plan that the options ask for.

    Raises:
        UsageError: An option, or a combination, is invalid.
    """
    if options.check is not None:
        return _checked(options, options.check)
    request = make_request(options)
    if ".py:" in options.model:
        plan = plan_own(own_module(options.model, list(options.inputs), options.batch), request)
    elif options.inputs or options.batch:
        raise UsageError("--input and --batch describe what FILE.py:FUNCTION is called with: gpt has its own batches")
    else:
        plan = make_plan(request)
        plan = refine(plan, request) if options.trace else plan
    if not options.explain:
        return plan
    first = 0 if plan.best is None else plan.best
    return replace(plan, explained=sorted({first, 0}))


def _checked(options: PlanOptions, path: Path) -> Plan:
    """Return the check of a run, by its own rates unless others are given."""
    given = {name for name, value in asdict(options).items() if value != getattr(_DEFAULTS, name)}
    if options.sizes or given & {"preset", "params", "batch_size", "batch", "inputs", "checkpoint", "ranks", "trace"}:
        raise UsageError("--check takes model, ranks and layout from the run: leave out the options that describe them")
    for option in ("tokens", "attention", "reserve", "explain"):
        if option in given:
            raise UsageError(f"--{option} has no effect with --check: remove it")
    rates, device = _rates_and_device(options, options.precision or "float32")
    return check_run(path, None if rates == Rates() else rates, device)


def make_request(options: PlanOptions) -> Request:
    """Return what is to be planned.

    Raises:
        UsageError: An option, or a combination, is invalid.
    """
    model = _model(options)
    is_run = options.params is None and (options.preset or options.model) not in NAMES
    precision = options.precision or ("float32" if is_run else "mixed")
    rates, device = _rates_and_device(options, precision)
    if options.offload in ("cpu", "nvme") and precision != OFFLOADS:
        raise UsageError(f"--offload {options.offload}: DeepSpeed offloads with --precision {OFFLOADS}: add it")
    if options.offload in ("cpu", "nvme") and options.trace:
        raise UsageError("--trace has no effect with --offload: what DeepSpeed moves is known by formula only")
    if model.shape.layers is None and options.attention != _DEFAULTS.attention:
        raise UsageError("--attention has no effect: the model is traced")
    return Request(
        shape=model.shape,
        ranks=options.ranks,
        global_batch=options.ranks * (options.batch_size or model.batch_size),
        precision=precision,
        device=device,
        rates=rates,
        fused=options.attention == "fused",
        reserve=options.reserve,
        tokens=options.tokens,
        checkpointing=options.checkpoint or ("none" if ".py:" in options.model else None),
        workload=model.workload,
        options=model.options,
        offload=options.offload or ("none" if options.trace else None),
    )


def _refuse_without_device(options: PlanOptions) -> None:
    for option in ("tokens", "efficiency", "link_efficiency", "latency"):
        if getattr(options, option) is not None:
            raise UsageError(f"{_flag(option)} has no effect without a device: name one with --device or --cluster")
    if options.measured is not None:
        raise UsageError(
            f"--from {options.measured} gives rates, but not what computes: name a device with --device or --cluster"
        )


def _flag(option: str) -> str:
    return "--" + option.replace("_", "-")


def _model(options: PlanOptions) -> Model:
    given = options.sizes
    if ".py:" in options.model:
        if given or options.params is not None or options.preset is not None or options.batch_size is not None:
            raise UsageError(f"{options.model} has its own sizes: give only --input or --batch")
        return Model(shape=Shape(name=options.model, tensors=(), are_whole=True), batch_size=1)
    if options.params is not None:
        if options.preset is not None or options.model in preset_names():
            given_name = f"{options.model}" if options.preset is None else "--preset"
            raise UsageError(f"--params describes another model: remove {given_name}")
        return counted_model(options.params, given)
    if options.model != "gpt":
        if options.preset is not None or options.model not in preset_names():
            raise UsageError(f"{options.model}: there are formulas for gpt, {', '.join(NAMES)}, or any size (--params)")
        return preset_model(options.model, given)
    return gpt_model(None, given) if options.preset is None else preset_model(options.preset, given)


def _rates_and_device(options: PlanOptions, precision: str) -> tuple[Rates, PlannedDevice | None]:
    """Return what a run of `--from` measured, else the values of the options."""
    for option in ("device_table", "cluster_table"):
        if getattr(options, option) is not None and options.device is None and options.cluster is None:
            raise UsageError(f"{_flag(option)} has no effect unless a device is named: add --device or --cluster")
    device = find_hardware(
        PRECISIONS[precision],
        device=options.device,
        cluster=options.cluster,
        device_table=options.device_table,
        cluster_table=options.cluster_table,
    )
    latency = LATENCY_NS if options.latency is None else float(parse_duration(options.latency, "--latency"))
    rates = Rates(
        efficiency=options.efficiency or EFFICIENCY,
        link_efficiency=options.link_efficiency or LINK_EFFICIENCY,
        latency_ns=latency,
    )
    if options.measured is not None:
        rates, device = measured_rates(options.measured, rates, device)
    if device is None:
        _refuse_without_device(options)
    return rates, device
