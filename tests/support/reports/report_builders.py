"""Reports with known numbers, for tests of report consumers."""

from typing import Any

from msgspec.structs import replace

from perfkit.engine.ledger.build import build_ledger
from perfkit.engine.ranks.summary import Compared
from perfkit.records.aggregate import step_time, steps_ns
from perfkit.records.common import Finding
from perfkit.records.cross_rank import BandwidthFit, CrossRankSummary, MatchedCollectiveStat, RankWait
from perfkit.records.manifest import FileBandwidth, Injection, RankRecord, Throughput
from perfkit.records.per_rank.idle import IdleNs, IdleTime
from perfkit.records.per_run.communication import DimensionStat, DimensionSummary
from perfkit.records.per_rank.sharding import DividedWork
from perfkit.records.rank import (
    CollectiveStat,
    ExposedNs,
    Loads,
    OperatorStat,
    PhaseStat,
    RankReport,
    StepBreakdown,
    TotalNs,
)
from perfkit.records.report import Report
from perfkit.records.run import DataLoading, Efficiency, LoadTimes, ProfilerCost, RunReport, Verdict

MS = 1_000_000
BASE_NS = 1_770_000_000_000_000_000


def make_step(
    number: int | None = 5,
    *,
    start_ns: int = BASE_NS,
    compute: int = 60 * MS,
    communication: int = 20 * MS,
    memcpy: int = 0,
    data_loading: int = 15 * MS,
    overhead: int = 5 * MS,
    hidden: int = 10 * MS,
) -> StepBreakdown:
    """A step whose parts are given in ns; `hidden` is added to the communication's total."""
    exposed = ExposedNs(
        compute=compute,
        communication=communication,
        memcpy=memcpy,
        data_loading=data_loading,
        overhead=overhead,
    )
    return StepBreakdown(
        step=number,
        start_ns=start_ns,
        wall_ns=compute + communication + memcpy + data_loading + overhead,
        exposed_ns=exposed,
        total_ns=TotalNs(
            compute=compute,
            communication=communication + hidden,
            memcpy=memcpy,
            data_loading=data_loading,
        ),
        loads=Loads(count=1, sum_ns=data_loading, max_ns=data_loading, spans_ns=[data_loading]),
        idle_ns=IdleNs(),
    )


def make_rank(rank: int | None = 0, steps: list[StepBreakdown] | None = None, **changes: Any) -> RankReport:
    """A rank of a CPU run with two steps, an operator, a kernel with a long name and two collectives."""
    fields: dict[str, Any] = {
        "rank": rank,
        "traces": [f"rank{rank}.json.gz"],
        "host": "node0",
        "device": "cpu",
        "backend": "gloo",
        "steps": [make_step(5), make_step(6, start_ns=BASE_NS + 100 * MS, compute=90 * MS)] if steps is None else steps,
        "operators": [
            make_operator("aten::addmm", count=144, total_ns=120 * MS),
            make_operator(LONG_KERNEL, count=12, total_ns=20 * MS),
            make_operator("gloo:all_reduce", category="communication", count=4, total_ns=60 * MS),
        ],
        "collectives": [
            make_collective(bytes=4_194_304, count=2, total_ns=50 * MS, exposed_ns=36 * MS),
            make_collective(bytes=1_024, count=2, total_ns=10 * MS, exposed_ns=4 * MS),
        ],
        "events": {"cpu_op": 1234, "user_annotation": 56},
        "phases": [PhaseStat(name="perfkit.forward", count=2, total_ns=80 * MS, max_ns=45 * MS)],
        "recorded": ["profile_memory", "record_shapes", "with_stack"],
        "idle": IdleTime(causes=[], kernels=0, short_kernels=0, has_python_frames=False),
    }
    return RankReport(**(fields | changes))


LONG_KERNEL = (
    "void at::native::(anonymous namespace)::vectorized_layer_norm_kernel<float, float, 4>"
    "(int, float, float const*, float const*, float const*, float*, float*, float*)"
)


def make_operator(name: str, **changes: Any) -> OperatorStat:
    fields = {"name": name, "category": "compute", "count": 2, "total_ns": 10 * MS, "max_ns": 6 * MS}
    return OperatorStat(**(fields | changes))  # type: ignore[arg-type]


def make_collective(**changes: Any) -> CollectiveStat:
    fields: dict[str, Any] = {
        "operator": "all_reduce",
        "group": "default",
        "group_size": 2,
        "bytes": 4_194_304,
        "dtype": "float32",
        "count": 2,
        "total_ns": 50 * MS,
        "exposed_ns": 36 * MS,
        "max_ns": 30 * MS,
    }
    return CollectiveStat(**(fields | changes))


def make_run(name: str = "transformer-hdf5-2ranks", **changes: Any) -> RunReport:
    """A complete run of perfkit's own on two CPU ranks, the second with a slow last step."""
    slow = [make_step(5), make_step(6, start_ns=BASE_NS + 100 * MS, compute=90 * MS, overhead=35 * MS)]
    fields: dict[str, Any] = {
        "run": name,
        "path": f"traces/{name}",
        "workload": "transformer",
        "source": "hdf5",
        "world_size": 2,
        "state": "completed",
        "verdict": Verdict(
            bound="none",
            share=0.125,
            sentence="No single large loss: 60 % is compute.",
        ),
        "ranks": [make_rank(0), make_rank(1, slow)],
        "data_loading": make_loading(),
        "profiler_cost": make_cost(107 * MS, 115 * MS),
        "config": {"batch_size": 32, "source": "hdf5"},
        "throughput": Throughput(
            samples_per_s=598.13,
            tokens_per_s=12_345.6,
            flops_per_s=1.234e12,
            mfu=None,
            mfu_reason="no peak is known for cpu",
            read_bytes_per_s=87_400_000.0,
            measured_on="plain",
            step_ns=107 * MS,
        ),
        "efficiency": make_efficiency(),
        "cross_rank": make_across(),
        "dimensions": make_dimensions(("dp", 30, 50), rank_steps=4),
        "injections": [Injection(phase="backward", delay_ns=60 * MS, rank=1)],
        "findings": [
            Finding(code="missing_sizes", severity="info", message="2 collectives have no size", rank=0),
            Finding(code="dropped_events", severity="error", message="3 events were dropped", file="rank1.json.gz"),
            Finding(code="start_skew", severity="warning", message="the first collective includes the start-up skew"),
        ],
    }
    return with_ledger(RunReport(**(fields | changes)))


def with_ledger(run: RunReport) -> RunReport:
    """The run with the ledger that its ranks have, as without a graph of its steps."""
    step = step_time(steps_ns(run, "plain"), run.ranks)
    if step is None or run.ledger is not None:
        return run
    compared = Compared(run.cross_rank, [], []) if run.cross_rank else None
    ledger = build_ledger((), run.ranks, step, compared, run.pipelines)
    return replace(run, step_time=step, ledger=ledger)



def make_record(walls_ns: list[int], rank: int = 0, load_ns: list[int] | None = None) -> RankRecord:
    """What a rank leaves in the manifest, with the wall times of its steps."""
    return RankRecord(
        rank=rank,
        local_rank=rank,
        node_rank=0,
        host="h",
        device="cpu",
        device_name="c",
        threads=1,
        step_wall_ns=walls_ns,
        load_ns=load_ns or [0] * len(walls_ns),
        loss=[None] * len(walls_ns),
    )


def make_cost(plain_ns: int, recorded_ns: int) -> ProfilerCost:
    return ProfilerCost(
        plain_step_ns=plain_ns,
        recorded_step_ns=recorded_ns,
        interval_ns=(recorded_ns - plain_ns - MS, recorded_ns - plain_ns + MS),
        added_ns=recorded_ns - plain_ns,
        ratio=recorded_ns / plain_ns,
        reason=None,
    )


def make_efficiency(**changes: Any) -> Efficiency:
    """Factors with a load balance below 0.8, of two ranks of 260 ms."""
    fields: dict[str, Any] = {
        "parallel": 0.75 * 0.9 * 0.95 * 1.0 * 0.88,
        "load_balance": 0.75,
        "host": 0.9,
        "input": 0.95,
        "serialisation": 1.0,
        "transfer": 0.88,
        "au": 0.62,
        "t_ns": 260 * MS,
        "t_ideal_ns": 229 * MS,
        "own_ns": 229 * MS,
        "replayed_ns": 229 * MS,
        "mean_compute_ns": 146.0 * MS,
        "max_compute_ns": 195 * MS,
        "sum_compute_ns": 293 * MS,
        "wait_ns": 30 * MS,
        "transfer_ns": 50 * MS,
        "unmatched_ns": 2 * MS,
        "reason": None,
    }
    return Efficiency(**(fields | changes))


def make_across(**changes: Any) -> CrossRankSummary:
    """Two all_reduces of two ranks, and a broadcast, which has no waiting time."""
    rows = [
        _make_matched("all_reduce", 4_194_304, 6.5, 12, ddp_bucket=True),
        _make_matched("all_reduce", 1_024, 1, 1),
        _make_matched("broadcast", 1_024, None, None),
    ]
    waits = [
        RankWait(rank=0, wait_ns=26 * MS, exposed_wait_ns=20 * MS, transfer_ns=24 * MS),
        RankWait(rank=1, wait_ns=0, exposed_wait_ns=0, transfer_ns=24 * MS),
    ]
    fit = BandwidthFit(
        operator="all_reduce",
        group="default",
        group_size=2,
        sizes=3,
        alpha_ns=1.0 * MS,
        beta=400e6,
        error=0.05,
        reason=None,
    )
    fields: dict[str, Any] = {
        "collectives": rows,
        "rank_waits": waits,
        "matched": 8,
        "unmatched": 1,
        "compared_steps": 4,
    }
    fields["bandwidth_fits"] = [fit]
    return CrossRankSummary(**(fields | changes))


def _make_matched(
    operator: str, size: int, wait_ms: float | None, transfer_ms: float | None, **changes: Any
) -> MatchedCollectiveStat:
    """Two collectives of two ranks; their bandwidth is that of the transfer."""
    rate = size * 1e9 / (transfer_ms * MS) if transfer_ms else None
    return MatchedCollectiveStat(
        operator=operator,
        group="default",
        group_size=2,
        dtype="float32",
        dimension="dp",
        bytes=size,
        count=2,
        wait_ns=None if wait_ms is None else wait_ms * MS,
        transfer_ns=None if transfer_ms is None else transfer_ms * MS,
        algbw=rate,
        busbw=rate,
        **changes,
    )


def make_dimensions(*parts: tuple[str | None, float, float], rank_steps: int = 8, **changes: Any) -> DimensionSummary:
    """Communication of these dimensions: name, exposed waiting and exposed transfer in ms, over all ranks and steps."""
    rows = []
    for name, wait_ms, transfer_ms in parts:
        wait_ns, transfer_ns = round(wait_ms * MS), round(transfer_ms * MS)
        fields: dict[str, Any] = {
            "dimension": name,
            "across_hosts": False,
            "group_size": 2,
            "groups": 1,
            "calls": 16,
            "bytes": 64_000_000,
            "total_ns": wait_ns + transfer_ns,
            "exposed_ns": wait_ns + transfer_ns,
            "exposed_wait_ns": wait_ns,
            "exposed_transfer_ns": transfer_ns,
            "wait_unknown_ns": 0,
            "share": 0.1,
            "busbw": 1e9,
            "serialisation_lost_ns": wait_ns,
            "transfer_lost_ns": transfer_ns,
        }
        rows.append(DimensionStat(**(fields | changes)))
    return DimensionSummary(rows=rows, rank_steps=rank_steps, outside_ns=0, outside_share=0.0, outside_lost_ns=0)


def make_divided(**changes: Any) -> DividedWork:
    """Tensor parallelism of which little is known."""
    known = {"dimension": "tp", "collectives": 16.0, "total_ns": 8.0 * MS, "exposed_ns": 6.0 * MS}
    known["compute_ns"] = 40.0 * MS
    fields: dict[str, Any] = dict.fromkeys(DividedWork.__struct_fields__)
    return DividedWork(**(fields | known | changes))


def make_loading(**changes: Any) -> DataLoading:
    """Four loads from HDF5; from memory there is no file bandwidth."""
    fields: dict[str, Any] = {
        "source": "hdf5",
        "count": 4,
        "median_ns": 15 * MS,
        "max_ns": 15 * MS,
        "max_rank": 1,
        "max_step": 6,
        "exposed_share": 0.125,
        "read_bytes_per_s": 87_400_000.0,
        "file_bandwidth": make_file_speed(),
        "file_share": 0.02185,
    }
    if changes.get("source") == "memory":
        fields |= {"file_bandwidth": None, "file_share": None}
    fields |= changes
    return DataLoading(**({"times": [make_load_times(fields["median_ns"], max_ns=fields["max_ns"])]} | fields))


def make_load_times(middle_ns: float, **changes: Any) -> LoadTimes:
    """Four loads that take as long, but for the slowest."""
    fields: dict[str, Any] = {
        "cache": None,
        "measured_on": "recorded",
        "count": 4,
        "least_ns": middle_ns,
        "quartiles_ns": (middle_ns, middle_ns, middle_ns),
        "interval_ns": None,
        "max_ns": middle_ns,
    }
    return LoadTimes(**(fields | changes))


def make_file_speed(**changes: Any) -> FileBandwidth:
    """A file of 200 MB, three quarters of it in the page cache, read at 2 GB/s."""
    fields: dict[str, Any] = {"bytes_per_s": 2e9, "read_bytes": 200_000_000, "wall_ns": 100 * MS, "cached_share": 0.75}
    return FileBandwidth(**(fields | changes))


def make_foreign_run(name: str = "foreign", **changes: Any) -> RunReport:
    """A run that perfkit did not record: one rank of many, a GPU, no manifest, nothing known about its input."""
    rank = make_rank(
        3,
        [make_step(None, memcpy=1 * MS, data_loading=0)],
        device="gpu",
        backend="nccl",
        host=None,
        collectives=[make_collective(operator="unknown", group=None, group_size=None, bytes=None, dtype=None)],
    )
    fields: dict[str, Any] = {
        "workload": None,
        "source": None,
        "world_size": 128,
        "state": None,
        "verdict": Verdict(bound="none", share=0.23, sentence="69 % compute"),
        "ranks": [rank],
        "data_loading": None,
        "efficiency": None,
        "cross_rank": None,
        "dimensions": None,
        "profiler_cost": None,
        "throughput": None,
        "config": None,
        "injections": [],
        "findings": [],
    }
    return make_run(name, **(fields | changes))


def make_report(*runs: RunReport) -> Report:
    return Report(perfkit_version="0.0.0", runs=list(runs) or [make_run()])
