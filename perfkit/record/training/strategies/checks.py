"""Refuses combinations of parallelism that do not work, before anything starts. Does not import torch or numpy."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from perfkit.errors import UsageError
from perfkit.options.mesh import DATA_DIMENSIONS, HYBRID_DIMENSIONS, data_dimensions, parse_mesh
from perfkit.options.run import RunConfig
from perfkit.record.training.pipeline_schedules import DEFAULT_PIPELINE, PIPELINES, default_micro_batches
from perfkit.record.training.strategies import STRATEGIES

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from perfkit.record.training.strategies.base import Strategy
    from perfkit_workloads.base import Workload

_BASIC = "ddp"


def check_parallelism(workload: Workload[Any], run: RunConfig) -> None:
    """Refuse options that the workload, the strategy or torch does not support together."""
    strategy = STRATEGIES.load(run.dp)
    for problem in _problems(workload, strategy, run):
        raise UsageError(problem)


def _problems(workload: Workload[Any], strategy: type[Strategy], run: RunConfig) -> Iterator[str]:
    if run.dp not in {_BASIC, *workload.STRATEGIES}:
        known = ", ".join(name for name in STRATEGIES.names() if name in {_BASIC, *workload.STRATEGIES})
        yield f"--dp {run.dp}: the workload {workload.name} supports {known}"
    yield from _mesh_problems(workload, strategy, run)
    yield from _deepspeed_problems(run)
    yield from strategy.find_problems(run)
    if not strategy.USES_DDP:
        yield from _ddp_problems(run)
    if run.prefetch_layers is not None and not strategy.GATHERS_LAYERS:
        yield f"--prefetch-layers has no effect with --dp {run.dp}, which does not gather layers: remove one of them"
    sizes = {} if run.mesh is None else parse_mesh(run.mesh)
    yield from _tensor_problems(run, sizes)
    yield from _expert_problems(run, sizes)
    yield from _context_problems(strategy, run, sizes)
    yield from _pipeline_problems(strategy, run, sizes)
    yield from _between_steps_problems(workload, run, sizes)
    stages = sizes.get("pp", 1) * PIPELINES[run.pp_schedule or DEFAULT_PIPELINE].stages_per_rank
    if (problem := workload.find_mesh_problem(sizes, sequence=run.sequence_parallel, stages=stages)) is not None:
        yield f"--mesh {run.mesh}: {problem}"


def _between_steps_problems(workload: Workload[Any], run: RunConfig, sizes: Mapping[str, int]) -> Iterator[str]:
    if run.eval_interval is not None:
        if not workload.EVALUATES:
            yield f"--eval-interval: the workload {workload.name} has no samples for evaluation: remove it"
        if run.dp == "deepspeed" or "pp" in sizes:
            other = "--dp deepspeed" if run.dp == "deepspeed" else "pp in --mesh"
            yield f"--eval-interval does not work with {other}: remove one of them"
    if run.checkpoint_interval is not None:
        parts = [name for name in ("pp", "ep") if name in sizes]
        if run.dp in ("zero1", "deepspeed") or parts:
            other = f"{parts[0]} in --mesh" if parts else f"--dp {run.dp}"
            yield f"--checkpoint-interval does not work with {other}: remove one of them"


def _mesh_problems(workload: Workload[Any], strategy: type[Strategy], run: RunConfig) -> Iterator[str]:
    if run.mesh is None:
        if data_dimensions(()) != strategy.DIMENSIONS:
            sizes = ",".join(f"{name}=2" for name in strategy.DIMENSIONS)
            yield f"--dp {run.dp} needs the sizes of its dimensions, for example --mesh {sizes}"
        return
    given = parse_mesh(run.mesh)
    for name in given:
        if name not in {*DATA_DIMENSIONS, *workload.dimensions()}:
            yield f"--mesh {run.mesh}: the workload {workload.name} does not support the dimension {name}"
        if name in DATA_DIMENSIONS and name not in strategy.DIMENSIONS:
            other = "--dp hsdp" if name in HYBRID_DIMENSIONS else "the other strategies"
            own = " and ".join(strategy.DIMENSIONS)
            yield f"--mesh {run.mesh}: dimension {name} is for {other}; --dp {run.dp} has {own}"


def _deepspeed_problems(run: RunConfig) -> Iterator[str]:
    given = {"--zero": run.zero is not None, "--ds-config": run.ds_config is not None}
    if run.dp != "deepspeed":
        yield from (f"{option} needs --dp deepspeed" for option, is_given in given.items() if is_given)
    elif run.mesh is not None and set(parse_mesh(run.mesh)) != {"dp"}:
        yield f"--mesh {run.mesh}: --dp deepspeed shares the model among all ranks: remove --mesh"


def _ddp_problems(run: RunConfig) -> Iterator[str]:
    given = {
        "--bucket-cap-mb": run.bucket_cap_mb is not None,
        "--static-graph": run.static_graph,
        "--find-unused": run.find_unused,
        "--no-overlap": not run.overlap,
    }
    for option, is_given in given.items():
        if is_given:
            yield f"{option} is an option of DDP, which --dp {run.dp} does not use: remove one of them"
    if run.compile:
        # torch silently compiles no graph of a model that fully_shard wraps.
        yield f"--compile has no effect with --dp {run.dp}: remove one of them"


def _tensor_problems(run: RunConfig, sizes: Mapping[str, int]) -> Iterator[str]:
    if "tp" not in sizes:
        if run.sequence_parallel:
            yield "--sequence-parallel needs tensor parallelism, for example --mesh tp=2"
        if run.loss_parallel:
            yield "--loss-parallel needs tensor parallelism, for example --mesh tp=2"
        return
    if run.loss_parallel and "pp" in sizes:
        yield "--loss-parallel does not work with pp in --mesh: remove one of them"
    if run.compile:
        yield "--compile does not work with tp in --mesh: remove one of them"
    if run.precision == "float16":
        yield "--precision float16 does not work with tp in --mesh, whose ranks would scale their losses differently"


def _expert_problems(run: RunConfig, sizes: Mapping[str, int]) -> Iterator[str]:
    if "ep" not in sizes:
        return
    for name in sizes.keys() - {"dp", "ep"}:
        yield f"--mesh {run.mesh}: ep works with dp only: remove {name}"
    refused = {
        f"--dp {run.dp}": run.dp != _BASIC,
        "--compile": run.compile,
        "--no-overlap": not run.overlap,
        "--precision float16": run.precision == "float16",  # the ranks would scale their losses differently
    }
    yield from _refuse(refused, "ep")


def _context_problems(strategy: type[Strategy], run: RunConfig, sizes: Mapping[str, int]) -> Iterator[str]:
    if "cp" not in sizes:
        return
    for name in sizes.keys() - {"dp", "cp"}:
        yield f"--mesh {run.mesh}: cp works with dp only: remove {name}"
    refused = {f"--dp {run.dp}": not strategy.USES_DDP, "--compile": run.compile}
    yield from _refuse(refused, "cp")


def _refuse(refused: Mapping[str, bool], dimension: str) -> Iterator[str]:
    for option, is_given in refused.items():
        if is_given:
            yield f"{option} does not work with {dimension} in --mesh: remove one of them"


def _pipeline_problems(strategy: type[Strategy], run: RunConfig, sizes: Mapping[str, int]) -> Iterator[str]:
    given = {
        "--pp-schedule": run.pp_schedule is not None,
        "--micro-batches": run.micro_batches is not None,
    }
    if "pp" not in sizes:
        yield from (
            f"{option} needs a pipeline, for example --mesh pp=2" for option, is_given in given.items() if is_given
        )
        return
    if sizes["pp"] == 1:
        yield f"--mesh {run.mesh}: a pipeline needs at least two ranks: remove pp=1"
    refused = {
        "--accumulate (use --micro-batches)": run.accumulate > 1,
        f"--precision {run.precision}": run.precision != "float32",
        "--compile": run.compile,
        "--static-graph": run.static_graph,
        "--find-unused": run.find_unused,
        "--no-overlap": not run.overlap,
        f"--dp {run.dp}": run.dp == "hsdp",
    }
    yield from _refuse(refused, "pp")
    name = run.pp_schedule or DEFAULT_PIPELINE
    if not PIPELINES[name].works_with_ddp and strategy.USES_DDP and sizes.get("dp", 1) > 1:
        yield f"--pp-schedule {name} does not work with DDP, which --dp {run.dp} uses: choose --dp zero2 or zero3"
    yield from _micro_batch_problems(run, name, sizes["pp"])


def _micro_batch_problems(run: RunConfig, schedule: str, ranks: int) -> Iterator[str]:
    parts = run.micro_batches or default_micro_batches(schedule, ranks)
    if PIPELINES[schedule].is_naive:
        if parts > 1:
            yield f"--pp-schedule {schedule} does not divide batches: remove --micro-batches {parts}"
        return
    if run.batch_size % parts:
        default = "" if run.micro_batches else f", the default for a pipeline of {ranks} ranks"
        yield f"--batch-size {run.batch_size} is not divisible by --micro-batches {parts}{default}"
    if parts % ranks:
        yield f"--micro-batches {parts} is not a multiple of the {ranks} ranks of the pipeline"
