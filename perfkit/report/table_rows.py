"""The tables of a report as flat rows, for CSV, Parquet and DataFrames: their columns, and what yields them."""

from collections.abc import Iterator
from typing import Final

from msgspec.structs import asdict, fields

from perfkit.schema.common import CATEGORIES, Finding
from perfkit.schema.per_rank.idle import IdleCause
from perfkit.schema.per_rank.memory import MemoryHolder
from perfkit.schema.per_rank.sharding import IssuedCollectives, ParameterGathers
from perfkit.schema.per_run.communication import DimensionStat
from perfkit.schema.per_run.critical_path import PathNameTime
from perfkit.schema.per_run.pipeline import PipelineRank
from perfkit.schema.rank import CollectiveStat, MemoryPeak, OperatorStat, RankReport, StepBreakdown
from perfkit.schema.report import Report
from perfkit.schema.roofline import RooflineRow
from perfkit.schema.run import RunReport
from perfkit.schema.scaling import Estimate, Factors, OptionRow, ScalingPoint

Value = str | int | float | None

STEP_COLUMNS: Final = (
    "run",
    "rank",
    "step",
    "start_ns",
    "wall_ns",
    *(f"exposed_{c}_ns" for c in CATEGORIES),
    *(f"total_{c}_ns" for c in CATEGORIES[:-1]),
    "loads_count",
    "loads_sum_ns",
    "loads_max_ns",
)
RANK_COLUMNS: Final = ("run", "rank", "host", "device", "backend", "steps", *STEP_COLUMNS[4:])
OPERATOR_COLUMNS: Final = ("run", "rank", *(f.name for f in fields(OperatorStat)))
COLLECTIVE_COLUMNS: Final = ("run", "rank", *(f.name for f in fields(CollectiveStat)))
DIMENSION_COLUMNS: Final = ("run", *(f.name for f in fields(DimensionStat)), "rank_steps")
ISSUED_COLUMNS: Final = ("run", "rank", *(f.name for f in fields(IssuedCollectives)))
GATHER_COLUMNS: Final = ("run", "rank", *(f.name for f in fields(ParameterGathers)))
PATH_COLUMNS: Final = ("run", *PathNameTime.__struct_fields__)
IDLE_COLUMNS: Final = ("run", "rank", *(f.name for f in fields(IdleCause)))
ROOFLINE_COLUMNS: Final = (
    "run",
    "device",
    *(f.name for f in fields(RooflineRow)),
    *("flops_per_s", "bytes_per_s", "intensity", "share"),
)
LOAD_COLUMNS: Final = ("run", "source", "rank", "step", "count", "sum_ns", "max_ns", "exposed_ns")
MEMORY_COLUMNS: Final = ("run", "rank", "device", *(f.name for f in fields(MemoryPeak)), "limit_bytes")
HOLDER_COLUMNS: Final = ("run", "rank", "device", *(f.name for f in fields(MemoryHolder)))
PIPELINE_COLUMNS: Final = (
    "run",
    "pipeline",
    "schedule",
    "stages",
    "micro_batches",
    "steps",
    "rank",
    "own_stages",
    *(f.name for f in fields(PipelineRank) if f.name.endswith("_ns")),
)
FINDING_COLUMNS: Final = ("run", *(f.name for f in fields(Finding)))

_ESTIMATES: Final = ("step_ns", "samples_per_s", "speedup", "efficiency", "karp_flatt")
POINT_COLUMNS: Final = (
    "series",
    "kind",
    "world_size",
    "nodes",
    "batch_size",
    "threads",
    "oversubscribed",
    "repeats",
    "measured_on",
    "resampled",
    *(f"{name}{end}" for name in _ESTIMATES for end in ("", "_low", "_high")),
    "tokens_per_s",
    *(f.name for f in fields(Factors)),
)

_OPTION_ESTIMATES: Final = ("step_ns", "samples_per_s", "ratio")
_OPTION_VALUES: Final = tuple(f.name for f in fields(OptionRow) if f.name not in {"value", "step_time", "ratio"})
OPTION_COLUMNS: Final = (
    "option",
    "name",
    "world_size",
    "value",
    "repeats",
    "measured_on",
    "resampled",
    *(f"{name}{end}" for name in _OPTION_ESTIMATES for end in ("", "_low", "_high")),
    *_OPTION_VALUES,
)


def _ranks(report: Report) -> Iterator[tuple[RunReport, RankReport]]:
    return ((run, rank) for run in report.runs for rank in run.ranks)


def _times(step: StepBreakdown) -> dict[str, int]:
    return {
        "wall_ns": step.wall_ns,
        **{f"exposed_{k}_ns": v for k, v in asdict(step.exposed_ns).items()},
        **{f"total_{k}_ns": v for k, v in asdict(step.total_ns).items()},
        **{f"loads_{k}": v for k, v in _loads(step).items()},
    }


def _loads(step: StepBreakdown) -> dict[str, int]:
    return {"count": step.loads.count, "sum_ns": step.loads.sum_ns, "max_ns": step.loads.max_ns}


def step_rows(report: Report) -> Iterator[dict[str, Value]]:
    """Yield one row of `STEP_COLUMNS` per step and rank."""
    for run, rank in _ranks(report):
        for step in rank.steps:
            where: dict[str, Value] = {"run": run.run, "rank": rank.rank, "step": step.step}
            yield {**where, "start_ns": step.start_ns, **_times(step)}


def rank_rows(report: Report) -> Iterator[dict[str, Value]]:
    """Yield one row of `RANK_COLUMNS` per rank, summed over its steps."""
    for run, rank in _ranks(report):
        times = [_times(step) for step in rank.steps]
        reduce = {"loads_max_ns": lambda values: max(values, default=0)}
        yield {
            "run": run.run,
            "rank": rank.rank,
            "host": rank.host,
            "device": rank.device,
            "backend": rank.backend,
            "steps": len(rank.steps),
            **{c: reduce.get(c, sum)(t[c] for t in times) for c in STEP_COLUMNS[4:]},
        }


def operator_rows(report: Report) -> Iterator[dict[str, Value]]:
    """Yield one row of `OPERATOR_COLUMNS` per kernel or operator and rank."""
    for run, rank in _ranks(report):
        for stat in rank.operators:
            yield {"run": run.run, "rank": rank.rank, **asdict(stat)}


def collective_rows(report: Report) -> Iterator[dict[str, Value]]:
    """Yield one row of `COLLECTIVE_COLUMNS` per kind of collective and rank."""
    for run, rank in _ranks(report):
        for stat in rank.collectives:
            yield {"run": run.run, "rank": rank.rank, **asdict(stat)}


def dimension_rows(report: Report) -> Iterator[dict[str, Value]]:
    """Yield one row of `DIMENSION_COLUMNS` per dimension of a run's communication."""
    for run, summary in ((run, run.dimensions) for run in report.runs):
        for row in summary.rows if summary else ():
            yield {"run": run.run, **asdict(row), "rank_steps": summary.rank_steps if summary else 0}


def issued_rows(report: Report) -> Iterator[dict[str, Value]]:
    """Yield one row of `ISSUED_COLUMNS` per place in the step where a rank issues collectives."""
    for run, rank in _ranks(report):
        for stat in rank.issued_collectives:
            yield {"run": run.run, "rank": rank.rank, **asdict(stat)}


def gather_rows(report: Report) -> Iterator[dict[str, Value]]:
    """Yield one row of `GATHER_COLUMNS` per phase and layer that gathers sharded parameters, and rank."""
    for run, rank in _ranks(report):
        for stat in rank.sharded_parameters.gathers if rank.sharded_parameters else ():
            yield {"run": run.run, "rank": rank.rank, **asdict(stat)}


def load_rows(report: Report) -> Iterator[dict[str, Value]]:
    """Yield one row of `LOAD_COLUMNS` per step and rank."""
    for run, rank in _ranks(report):
        for step in rank.steps:
            exposed = step.exposed_ns.data_loading
            where: dict[str, Value] = {"run": run.run, "source": run.source, "rank": rank.rank}
            yield {**where, "step": step.step, **_loads(step), "exposed_ns": exposed}


def idle_rows(report: Report) -> Iterator[dict[str, Value]]:
    """Yield one row of `IDLE_COLUMNS` per cause and detail of idle time and rank."""
    for run, rank in _ranks(report):
        for row in rank.idle.causes:
            yield {"run": run.run, "rank": rank.rank, **asdict(row)}


def roofline_rows(report: Report) -> Iterator[dict[str, Value]]:
    """Yield one row of `ROOFLINE_COLUMNS` per operator and shapes, over all ranks of a run."""
    for run in report.runs:
        for row in run.roofline.rows if run.roofline else ():
            achieved = {name: getattr(row, name) for name in ROOFLINE_COLUMNS[-4:]}
            device = run.roofline.device if run.roofline else None
            yield {"run": run.run, "device": device, **asdict(row), **achieved}


def path_rows(report: Report) -> Iterator[dict[str, Value]]:
    """Yield one row of `PATH_COLUMNS` per kind and name on the critical path of each run."""
    for run in report.runs:
        for row in run.critical_path.names if run.critical_path else ():
            yield {"run": run.run, **asdict(row)}


def holder_rows(report: Report) -> Iterator[dict[str, Value]]:
    """Yield one row of `HOLDER_COLUMNS` per category and origin of what is allocated at a device's peak, and rank."""
    for run, rank in _ranks(report):
        for use in rank.memory:
            for holder in use.holders:
                yield {"run": run.run, "rank": rank.rank, "device": use.device, **asdict(holder)}


def memory_rows(report: Report) -> Iterator[dict[str, Value]]:
    """Yield one row of `MEMORY_COLUMNS` per step, device and rank."""
    for run, rank in _ranks(report):
        for use in rank.memory:
            where: dict[str, Value] = {"run": run.run, "rank": rank.rank, "device": use.device}
            for peak in use.steps:
                yield {**where, **asdict(peak), "limit_bytes": use.limit_bytes}


def pipeline_rows(report: Report) -> Iterator[dict[str, Value]]:
    """Yield one row of `PIPELINE_COLUMNS` per rank of each pipeline."""
    for run in report.runs:
        for number, pipeline in enumerate(run.pipelines):
            for rank in pipeline.ranks:
                yield {
                    "run": run.run,
                    "pipeline": number,
                    "schedule": pipeline.schedule,
                    "stages": pipeline.stages,
                    "micro_batches": pipeline.micro_batches,
                    "steps": pipeline.steps,
                    "rank": rank.rank,
                    "own_stages": " ".join(map(str, rank.stages)),
                    **{name: getattr(rank, name) for name in PIPELINE_COLUMNS if name.endswith("_ns")},
                }


def finding_rows(report: Report) -> Iterator[dict[str, Value]]:
    """Yield one row of `FINDING_COLUMNS` per finding; `run` is None for findings about several runs."""
    for finding in report.findings:
        yield {"run": None, **asdict(finding)}
    for run in report.runs:
        for finding in run.findings:
            yield {"run": run.run, **asdict(finding)}


def point_rows(report: Report) -> Iterator[dict[str, Value]]:
    """Yield one row of `POINT_COLUMNS` per world size of a series."""
    for series in report.multi_run.series if report.multi_run else ():
        for point in series.points:
            estimates = {name: getattr(point, name, None) for name in _ESTIMATES}
            estimates |= {"step_ns": point.step_time.step_ns, "samples_per_s": point.step_time.samples_per_s}
            yield {
                "series": series.name,
                "kind": series.kind,
                **_setup(point),
                **{key: value for name in _ESTIMATES for key, value in _ends(name, estimates[name]).items()},
                "tokens_per_s": point.step_time.tokens_per_s,
                **{f.name: getattr(point.factors, f.name, None) for f in fields(Factors)},
            }


def _setup(point: ScalingPoint) -> dict[str, Value]:
    return {
        "world_size": point.world_size,
        "nodes": point.nodes,
        "batch_size": point.batch_size,
        "threads": point.threads,
        "oversubscribed": point.oversubscribed,
        "repeats": len(point.step_time.runs),
        "measured_on": point.step_time.measured_on,
        "resampled": point.step_time.resampled,
    }


def _ends(name: str, estimate: Estimate | None) -> dict[str, Value]:
    low, high = (estimate.interval if estimate else None) or (None, None)
    return {name: estimate.value if estimate else None, f"{name}_low": low, f"{name}_high": high}


def option_rows(report: Report) -> Iterator[dict[str, Value]]:
    """Yield one row of `OPTION_COLUMNS` per value of an option that runs are compared by."""
    for comparison in report.multi_run.option_comparisons if report.multi_run else ():
        for row in comparison.rows:
            step_time = row.step_time
            estimates = {"step_ns": step_time.step_ns, "samples_per_s": step_time.samples_per_s, "ratio": row.ratio}
            yield {
                "option": comparison.option,
                "name": comparison.name,
                "world_size": comparison.world_size,
                "value": row.value,
                "repeats": len(step_time.runs),
                "measured_on": step_time.measured_on,
                "resampled": step_time.resampled,
                **{key: value for name in _OPTION_ESTIMATES for key, value in _ends(name, estimates[name]).items()},
                **{name: getattr(row, name) for name in _OPTION_VALUES},
            }
