"""Situations as records: what traces of a few steps do not hold, in the mean over ranks."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

from msgspec.structs import replace

from perfkit.engine.ledger.verdict import judge
from perfkit.engine.runs.pauses import costliest
from perfkit.engine.runs.trust import doubts, is_busy
from perfkit.pipeline.words import find_insights, verdict
from perfkit.records.common import Observation
from perfkit.records.per_rank.idle import (
    NO_LAUNCH,
    QUEUED_FOR_ANOTHER,
    QUEUED_FOR_NOTHING,
    SILENT_THREAD,
    PossibleLoading,
)
from perfkit.records.per_rank.loading import (
    LoadActivity,
    LoadingPart,
    RankLoading,
    SlowSample,
    WaitCause,
    WaitNs,
    WorkerFetches,
)
from perfkit.records.per_run.pauses import RankPauses
from perfkit.records.per_run.whatif import PredictedSaving
from perfkit.records.report import Report
from perfkit.records.run import CoreLoad, RunReport, StepTimes
from perfkit.records.samples import CodeLocation
from perfkit.report.wording import worded
from perfkit.report.wording.findings import word_all
from tests.support.reports.report_builders import (
    MS,
    make_cost,
    make_efficiency,
    make_foreign_run,
    make_loading,
    make_rank,
    make_report,
    make_step,
    with_ledger,
)
from tests.support.reports.roofline_builders import roofline_row, roofline_run
from tests.support.reports.scaling_builders import (
    make_hosts,
    make_scaled,
    make_scaling_report,
    make_together,
)
from tests.support.traces.idle_builders import idle_rank, row
from tests.unit.engine.losses.test_dimensions import communicating, with_buckets
from tests.unit.pipeline.test_insights import QUIET, run_of, waiting_run
from tests.unit.report.content.test_sharding_content import make_sharded
from tests.unit.subjects.collectives.test_avoidable import run_of as collectives_of
from tests.unit.subjects.sharding.test_losses import late as late_gathers
from tests.unit.subjects.sharding.test_losses import run_of as sharding

Make = Callable[[Path], Report]
LINES: Final[Mapping[str, CodeLocation]] = {
    name: CodeLocation(function=name, file="train.py", line=line, call=None, ns=100 * MS)
    for name, line in {"read": 12, "decode": 21, "colour_jitter": 32, "collate": 44, "lock": 51, "log": 60}.items()
}
EMPTIES: Final = CodeLocation(function="step", file="train.py", line=70, call="torch.cuda.empty_cache", ns=100 * MS)


def answered(run: RunReport, *seen: Observation, loads: Sequence[CoreLoad] = ()) -> Report:
    """Return the report on a run of which this was observed."""
    run = with_ledger(
        replace(run, ledger=None, cross_rank=None if is_busy(loads) else run.cross_rank, run="run", path="run")
    )
    findings = [*run.findings, *word_all(seen)]
    trust = worded(doubts(seen, loads, run.ranks, run.profiler_cost, run.config))
    judged = verdict(judge(run.ledger, costliest(run.pauses, run.ranks), findings, len(run.ranks)))
    whole = replace(run, findings=findings, trust=trust, verdict=judged)
    return replace(make_report(whole), insights=find_insights([whole], None).insights)


def said(make: Callable[[], RunReport], *seen: Observation, loads: Sequence[CoreLoad] = ()) -> Make:
    return lambda _: answered(make(), *seen, loads=loads)


# ---- data loading ----------------------------------------------------------------------------------------------------

PARTS: Final[Mapping[LoadActivity, tuple[WaitCause, str | None]]] = {
    "reading": ("reading", "read"),
    "decoding": ("transforming", "decode"),
    "transforming": ("transforming", "colour_jitter"),
    "collating": ("collating", "collate"),
    "pinning": ("transfer", None),
    "transfer": ("transfer", None),
    "workers": ("workers_busy", None),
    "core": ("core", None),
    "waiting": ("waiting", "lock"),
}
"""What may run while a step waits for its batch: the cause that it counts as, and a line of the program."""
WORKERS: Final = [
    WorkerFetches(worker=number, batches=4, median_ns=ms * MS, get_ns=4 * ms * MS, cpu_ns=2 * ms * MS, collate_ns=0)
    for number, ms in ((0, 10), (1, 150))
]


def waits(cause: WaitCause, **changes: Any) -> RankLoading:
    return RankLoading(waits_ns=WaitNs(**{cause: 160 * MS}), **({"workers": []} | changes))


def loading(why: RankLoading | None, ranks: int = 2, *, own: bool = True, **changes: Any) -> RunReport:
    """Steps of 100 ms of which 40 wait for data."""
    run = run_of(*[{"compute": 57 * MS, "data_loading": 40 * MS}] * ranks, config=None if own else {}, **changes)
    return replace(run, ranks=[replace(rank, loading=why) for rank in run.ranks], **({} if own else {"config": None}))


def on_some(run: RunReport) -> RunReport:
    """Return a run of which only the second half of the ranks waits for a slow worker."""
    first = len(run.ranks) // 2
    ranks = [replace(rank, loading=waits("other")) for rank in run.ranks[:first]]
    return replace(run, ranks=[*ranks, *run.ranks[first:]])


def sampled(activity: LoadActivity, line: bool) -> Callable[[], RunReport]:
    cause, name = PARTS[activity]
    part = LoadingPart(activity=activity, code=LINES[name] if name and line else None, ns=160 * MS)
    return lambda: loading(waits(cause, parts=[part]))


LOADING: Final[Mapping[str, Make]] = {
    **{f"data loading: {activity}": said(sampled(activity, line=True)) for activity in PARTS},
    "data loading: decoding without a line": said(sampled("decoding", line=False)),
    "data loading: a slow worker": said(lambda: loading(waits("slow_worker", workers=WORKERS, slow_workers=[1]))),
    "data loading: a slow worker of one rank": said(
        lambda: loading(waits("slow_worker", workers=WORKERS, slow_workers=[1]), 1)
    ),
    "data loading: a slow sample": said(
        lambda: loading(waits("slow_sample", slow_samples=[SlowSample(index=117, worker=0, ns=57 * MS)]))
    ),
    "data loading: slow workers of 2 of 4 ranks": said(
        lambda: on_some(loading(waits("slow_worker", workers=WORKERS, slow_workers=[1]), 4))
    ),
    "data loading: slow samples": said(
        lambda: loading(
            waits("slow_sample", slow_samples=[SlowSample(index=n, worker=0, ns=57 * MS) for n in (117, 9, 4)])
        )
    ),
    "data loading: slow samples without numbers": said(lambda: loading(waits("slow_sample"))),
    "data loading: reading, with workers": said(lambda: loading(waits("reading", workers=WORKERS))),
    "data loading: too few cores": said(
        lambda: loading(waits("transforming", workers=WORKERS), hosts=make_hosts(2, cores=2))
    ),
    "data loading: nothing known": said(lambda: loading(None)),
    "data loading: a script of one's own": said(lambda: loading(None, own=False)),
    "data loading: per-sample reads": said(
        lambda: replace(loading(None), config={"read": "per-sample", "num_workers": 2})
    ),
    "data loading: HDF5 near its file's bandwidth": said(
        lambda: loading(None, source="hdf5", data_loading=make_loading(median_ns=40 * MS, file_share=0.9))
    ),
    "data loading: safetensors": said(
        lambda: loading(
            waits("reading"),
            source="safetensors",
            data_loading=make_loading(source="safetensors", median_ns=40 * MS, file_share=0.1),
        )
    ),
    "data loading: data in memory": said(lambda: loading(waits("collating"), source="memory")),
    "data loading: on 1 of 2 ranks": said(
        lambda: run_of({"compute": 57 * MS, "communication": 40 * MS}, {"compute": 57 * MS, "data_loading": 40 * MS})
    ),
}

# ---- idle devices ----------------------------------------------------------------------------------------------------


def idle(*causes: Any, own: bool = False, **changes: Any) -> Make:
    options: dict[str, Any] = {"config": {"compile": False, "with_stack": False, "dp": "ddp"}} if own else {}
    return said(lambda: make_foreign_run(ranks=[idle_rank(*causes, **changes)], world_size=1, **options))


def at(cause: Any, detail: str, ms: float, line: str, **changes: Any) -> Any:
    """Return a part of idle time at a line of the program."""
    return replace(row(cause, detail, ms, **changes), code=LINES[line])


IDLE: Final[Mapping[str, Make]] = {
    "idle: reading results": idle(row("synchronisation", "aten::item", 20, "train.py(5): log", count=40)),
    "idle: reading results, with a line": idle(at("synchronisation", "aten::item", 20, "log")),
    "idle: copies that wait": idle(row("synchronisation", "aten::to", 20)),
    "idle: launching": idle(row("launch_bound", "aten::add", 40), kernels=900, short_kernels=800),
    "idle: launching, perfkit's own": idle(row("launch_bound", "aten::add", 40), own=True),
    "idle: launching in the optimizer": idle(row("launch_bound", "aten::add", 20, "Optimizer.step#AdamW.step")),
    "idle: a function": idle(at("host_work", "train.py(32): colour_jitter", 30, "colour_jitter")),
    "idle: between operators": idle(row("host_work", "perfkit.forward", 30), has_python_frames=False),
    "idle: between operators, perfkit's own": idle(
        row("host_work", "perfkit.forward", 30), own=True, has_python_frames=False
    ),
    "idle: many things": idle(*(row("host_work", f"f{number}", 2) for number in range(10))),
    "idle: an operator on the CPU": idle(row("host_work", "aten::nonzero", 30, count=40)),
    "idle: an operator's first call": idle(row("host_work", "aten::mm", 30, count=1)),
    "idle: a first launch": idle(row("host_work", "cudaLaunchKernel", 30)),
    "idle: garbage collection": idle(row("host_work", "<built-in function collect>", 30)),
    "idle: saving": idle(row("host_work", "torch/serialization.py(943): save", 30)),
    "idle: printing": idle(row("host_work", "<built-in function print>", 30)),
    "idle: allocating": idle(row("allocation", "cudaMalloc", 20)),
    "idle: allocating again": idle(row("allocation", "cudaMalloc", 20), row("allocation", "cudaFree", 10)),
    "idle: emptying the cache": idle(replace(row("allocation", "cudaFree", 20), code=EMPTIES)),
    "idle: compiling": idle(row("compilation", "Torch-Compiled Region: 0/0", 20)),
    "idle: the other stream": idle(row("dependency", QUEUED_FOR_ANOTHER, 20)),
    "idle: between kernels": idle(row("dependency", "gap", 20)),
    "idle: something outside of the trace": idle(row("dependency", QUEUED_FOR_NOTHING, 20)),
    "idle: a lock": idle(at("not_running", "threading.py(355): wait", 20, "lock")),
    "idle: a thread that waits": idle(row("not_running", SILENT_THREAD, 20)),
    "idle: the profiler": idle(row("profiler", "PROFILER", 20)),
    "idle: launches were not recorded": idle(row("unknown", NO_LAUNCH, 20)),
    "idle: cause unknown": idle(row("unknown", "nothing recorded on the host", 20), has_python_frames=False),
    "idle: what may be loading": idle(
        row("host_work", "train.py(116): get_batch", 30),
        possible_loading=PossibleLoading(name="train.py(116): get_batch", total_ns=120 * MS),
    ),
    "idle: many causes": idle(
        row("synchronisation", "aten::item", 9),
        row("launch_bound", "aten::add", 9),
        row("host_work", "f", 9),
        row("allocation", "cudaMalloc", 9),
        row("compilation", "x", 9),
        row("unknown", "y", 9),
    ),
}

# ---- communication and work ------------------------------------------------------------------------------------------

SAVE: Final = RankPauses(
    phase="checkpoint", rank=1, count=4, total_ns=400 * MS, max_ns=100 * MS, caller="train.py:14 save", steps=16
)
UNKNOWN: Final = make_efficiency(wait_ns=0, transfer_ns=160 * MS, unmatched_ns=100 * MS)

WORK: Final[Mapping[str, Make]] = {
    **{
        f"communication: {name}": said(partial(communicating, (name, 2, 18)))
        for name in ("dp", "tp", "cp", "ep", "shard")
    },
    "communication: waiting": said(lambda: communicating(("dp", 18, 2))),
    "communication: another program": said(lambda: communicating(("dp", 2, 18), own=False)),
    "communication: tp across hosts": said(lambda: communicating(("tp", 2, 18), across=True)),
    "communication: small buckets": said(lambda: with_buckets(20, 100_000, 0.9)),
    "communication: one bucket": said(lambda: with_buckets(1, 100_000_000, 0.0)),
    "communication: tiny collectives": said(lambda: collectives_of(each_us=100, per_step=66)),
    "communication: without overlap": said(lambda: waiting_run(32, 128, config={"overlap": False})),
    "communication: not matched": said(lambda: waiting_run(32, 128, slow=False, efficiency=UNKNOWN)),
    "communication: late all-gathers": said(
        lambda: sharding(make_sharded(late_gathers(16)), make_sharded(late_gathers(24)))
    ),
    "waiting: none is late": said(lambda: waiting_run(128, 32, slow=False)),
    "late, without a graph": said(lambda: waiting_run(128, 32)),
    "checkpoints": said(lambda: waiting_run(32, 128, slow=False, pauses=[SAVE])),
    "more threads than cores": said(
        lambda: waiting_run(128, 32, hosts=make_hosts(2, cores=4, threads=4), config={"threads": None})
    ),
    "more ranks than cores": said(lambda: waiting_run(128, 32, hosts=make_hosts(2, cores=1))),
    "products in float32": said(
        lambda: roofline_run(roofline_row("gemm", 30, tensor_cores=False), roofline_row("normalisation", 40))
    ),
    "element-wise operators": said(lambda: roofline_run(roofline_row("elementwise", 30))),
    "copies, perfkit's own": said(lambda: run_of({"compute": 60 * MS, "memcpy": 30 * MS})),
}

# ---- doubts ----------------------------------------------------------------------------------------------------------

BUSY: Final = CoreLoad(ranks=[0, 1], cores=2, own=0.4, others=1.6, idle=0.0, taken_share=0.8)
DOUBTS: Final[Mapping[str, Observation]] = {
    "events are lost": Observation("damaged_trace", {"damage": "ends within an event"}, file="rank1.json"),
    "events are skipped": Observation(
        "skipped_events", {"count": 1, "noun": "event", "what": "without a usable start, skipped"}
    ),
    "recorded apart": Observation("start_skew", {"first_ns": 2100 * MS, "usual_ns": 1e6, "has_later": True}),
    "ranks without a trace": Observation("ranks_missing", {"missing": 2, "of": 4, "absent": [2, 3], "chosen": False}),
    "ranks not chosen": Observation("ranks_missing", {"chosen": [0, 1], "world_size": 4}, "not_chosen", "info"),
    "number of ranks unknown": Observation("world_size_unknown", {"backends": ["nccl"]}),
    "contradicting traces": Observation("suspect_matches", {"apart": 3, "of": 40}),
    "no steps": Observation("no_steps", {"marker": None, "source": "trace"}),
    "different steps": Observation("uneven_steps", {"rank": 1, "steps": 3, "most": 5}),
    "compiled steps": Observation("compilation_recorded", {"recorded": [5, 6]}, "manifest"),
    "unknown kernels": Observation(
        "possible_communication",
        {"name": "strange", "kernels": 12, "other_names": 0, "ns": 3 * MS, "share": 0.12, "beside_communication": True},
    ),
}
PAIRS: Final = [
    ("recorded apart", "ranks without a trace"),
    ("events are lost", "compiled steps"),
    ("ranks without a trace", "unknown kernels"),
    ("contradicting traces", "different steps"),
    ("number of ranks unknown", "compiled steps"),
]


def steps_of(*walls_ms: int, **changes: Any) -> RunReport:
    ranks = [
        make_rank(rank, [make_step(n, compute=(wall - 40) * MS) for n, wall in enumerate(walls_ms)]) for rank in (0, 1)
    ]
    return run_of({}, {}, ranks=ranks, **changes)


def costly(plain: int, recorded: int, **config: Any) -> RunReport:
    """Recorded steps of 100 ms, and what the profiler adds to them."""
    run = run_of(
        *[QUIET | {"compute": 56 * MS, "overhead": 42 * MS}] * 2, profiler_cost=make_cost(plain * MS, recorded * MS)
    )
    return replace(run, config={**(run.config or {}), **config})


TRUST: Final[Mapping[str, Make]] = {
    **{f"doubt: {name}": said(lambda: waiting_run(128, 32), seen) for name, seen in DOUBTS.items()},
    **{
        f"doubts: {one}, {other}": said(lambda: waiting_run(128, 32), DOUBTS[one], DOUBTS[other])
        for one, other in PAIRS
    },
    "doubt: a busy machine, late": said(lambda: waiting_run(128, 32), loads=[BUSY]),
    "doubt: a busy machine, communication": said(lambda: waiting_run(32, 128), loads=[BUSY]),
    "doubt: a busy machine, data loading": said(lambda: loading(waits("reading")), loads=[BUSY]),
    "doubts: a busy machine, ranks without a trace": said(
        lambda: waiting_run(128, 32), DOUBTS["ranks without a trace"], loads=[BUSY]
    ),
    "doubt: 2 steps": said(lambda: steps_of(100, 102)),
    "doubt: steps vary": said(lambda: steps_of(100, 100, 160)),
    "doubts: 2 steps, the profiler": said(lambda: steps_of(100, 102, profiler_cost=make_cost(60 * MS, 100 * MS))),
    "doubt: the profiler": said(lambda: costly(60, 100, detail="why")),
    "doubt: not typical": said(lambda: costly(130, 100)),
    "no verdict: no device": said(
        lambda: waiting_run(128, 32), *[Observation("no_device_events", {"signs": ["launches"], "backend": "nccl"})] * 2
    ),
}

# ---- the rest --------------------------------------------------------------------------------------------------------


def predicted(saving_ms: float) -> RunReport:
    """Data loading of 40 ms of which so much is saved by replay."""
    return replace(
        loading(waits("reading")), predicted_savings=[PredictedSaving(change="input=0", saving_ns=saving_ms * MS)]
    )


def timed(plain_ms: int) -> RunReport:
    """Recorded steps of 100 ms, and steps without the profiler."""
    parts = [QUIET | {"compute": 60 * MS, "overhead": 38 * MS}] * 2
    times = StepTimes(plain_ns=[plain_ms * MS] * 6, recorded_ns=[100 * MS] * 4)
    return run_of(*parts, step_times=times)


def series(*sizes: int) -> Make:
    def make(_: Path) -> Report:
        runs = [make_scaled(size, 100 + 5 * size, name=f"gpt-{size}") for size in sizes]
        judged = [
            replace(run, verdict=verdict(judge(run.ledger, None, [], size)))
            for run, size in zip(runs, sizes, strict=True)
        ]
        return make_together(judged)

    return make


OTHERS: Final[Mapping[str, Make]] = {
    "saving: known": said(lambda: predicted(31)),
    "saving: all of it": said(lambda: predicted(40)),
    "saving: up to the row": said(lambda: predicted(70)),
    "saving: too little to name": said(lambda: predicted(0.05)),
    "step: faster without the profiler": said(lambda: timed(80)),
    "step: slower without the profiler": said(lambda: timed(130)),
    "out of memory": said(
        lambda: replace(waiting_run(128, 32), state="failed"),
        Observation(
            "run_failed", {"rank": 1, "failure": "OutOfMemoryError", "step": 25, "at": "2026-11-27T13:53:51+00:00"}
        ),
    ),
    "a plug-in's subject failed": said(
        lambda: waiting_run(128, 32),
        Observation("subject_failed", {"error": "subject 'mine' of mypackage 1.0 failed: KeyError: 3"}),
    ),
    "replicas: same batches": said(lambda: waiting_run(128, 32), Observation("same_batches", {"ranks": 2, "steps": 4})),
    "replicas: other parameters": said(
        lambda: waiting_run(128, 32), Observation("replicas_differ", {"ranks": [1], "count": 9_050_000})
    ),
    "2 runs": series(1, 2),
    "6 runs": series(1, 2, 3, 4, 6, 8),
    "scaling from two sources": lambda _: make_scaling_report(),
}

SITUATIONS: Final[Mapping[str, Make]] = {**LOADING, **IDLE, **WORK, **TRUST, **OTHERS}
