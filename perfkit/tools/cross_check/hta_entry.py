"""Run Holistic Trace Analysis: read a job as JSON from stdin, write HTA's table to the file that the job names.

A separate process, which imports nothing of perfkit: HTA logs to stdout, forks, reads settings from the working
directory and prints while it computes. If it crashes or runs out of memory, only this process ends.
"""

import json
import re
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

Job = dict[str, Any]


def main() -> None:
    """Run the job on stdin."""
    job = json.load(sys.stdin)
    try:
        result = run(job)
    # The outermost boundary: any error of HTA is the result.
    except Exception as error:  # noqa: BLE001
        frames = [frame for frame in traceback.extract_tb(error.__traceback__) if "hta" in Path(frame.filename).parts]
        where = f" (hta, {Path(frames[-1].filename).name} line {frames[-1].lineno})" if frames else ""
        result = {"error": f"{type(error).__name__}: {error}{where}"}
    Path(job["result"]).write_text(json.dumps(result), encoding="utf-8")


def run(job: Job) -> dict[str, Any]:
    """Return HTA's table as columns and rows."""
    _allow_drop_with_axis()
    analysis = _load(job["files"])
    _refuse_expressions(analysis)
    table = ANALYSES[job["analysis"]](analysis, job)
    if table is None:
        return {"error": "it returned no table"}
    if job.get("count_events"):
        counts = _event_counts(analysis)
        table = table.assign(**{name: table["rank"].map(by_rank) for name, by_rank in counts.items()})
    flat = table.reset_index() if any(table.index.names) else table
    columns = [".".join(filter(None, name)) if isinstance(name, tuple) else str(name) for name in flat.columns]
    # pandas writes NaN and infinity, which JSON lacks, as null.
    rows = json.loads(flat.set_axis(range(len(columns)), axis=1).to_json(orient="values", double_precision=15))
    return {"columns": columns, "rows": rows}


def _load(files: dict[str, str]) -> Any:
    from hta.trace_analysis import TraceAnalysis

    # HTA omits the last step by default; perfkit's windows include it.
    by_rank = {int(rank): path for rank, path in files.items()}
    return TraceAnalysis(trace_files=by_rank, include_last_profiler_step=True)


def _refuse_expressions(analysis: Any) -> None:
    """Refuse a trace whose ids could be read as code: HTA writes them into expressions that pandas evaluates."""
    for rank, frame in analysis.t.traces.items():
        for name in _IDS:
            for value in frame[name].unique() if name in frame else ():
                if isinstance(value, str) and not _HARMLESS.fullmatch(value):
                    raise ValueError(f"rank {rank} has a {name} that is not a plain name: {value[:40]!r}")


_DEVICE_WORK: Final = ("kernel", "gpu_memcpy", "gpu_memset")


def _event_counts(analysis: Any) -> dict[str, dict[int, int]]:
    """Return the numbers of events, by rank, that HTA takes for work of the device: all that have a stream.

    `device_events` are kernels, copies and memsets, of which HTA drops some; `computing_events` those that it takes for
    computation, by their names; `synchronisations` and `host_events` are no work of the device.
    """
    from hta.utils.utils import get_kernel_type

    symbols = analysis.t.symbol_table.get_sym_table()
    counts: dict[str, dict[int, int]] = {}
    for rank, frame in analysis.t.traces.items():
        taken = frame[frame["stream"].ne(-1)]
        category = taken["cat"].map(lambda number: symbols[number])
        is_work, is_waiting = category.isin(_DEVICE_WORK), category.eq("cuda_sync")
        computes = taken["name"].map(lambda number: get_kernel_type(symbols[number]) == "COMPUTATION")
        parts = {
            "device_events": is_work,
            "computing_events": is_work & computes,
            "synchronisations": is_waiting,
            "host_events": ~is_work & ~is_waiting,
        }
        for name, is_part in parts.items():
            counts.setdefault(name, {})[int(rank)] = int(is_part.sum())
    return counts


_IDS: Final = ("pid", "tid", "stream", "device", "gpu", "correlation", "index")
_HARMLESS: Final = re.compile(r"[\w .:#-]{0,80}")


def _allow_drop_with_axis() -> None:
    """Let `DataFrame.drop` accept `axis` with `columns`, as HTA calls it and pandas before 3 allowed."""
    from pandas import DataFrame

    drop = DataFrame.drop

    def lenient(frame: Any, *labels: Any, **options: Any) -> Any:
        if options.get("columns") is not None or options.get("index") is not None:
            options.pop("axis", None)
        return drop(frame, *labels, **options)

    DataFrame.drop = lenient  # type: ignore[method-assign, assignment]


def _launch_stats(analysis: Any, job: Job) -> Any:
    import pandas as pd

    by_rank = analysis.get_cuda_kernel_launch_stats(ranks=_ranks(job), visualize=False)
    parts = [frame.assign(rank=rank) for rank, frame in by_rank.items()]
    stats = pd.concat(parts, ignore_index=True)
    return stats[["rank", *(name for name in stats.columns if name != "rank")]]


def _kernels(analysis: Any, job: Job) -> Any:  # noqa: ARG001
    """Return the times of kernels, all of them: HTA sums up the smaller ones as "others" otherwise."""
    _, kernels = analysis.get_gpu_kernel_breakdown(visualize=False, duration_ratio=1.0, num_kernels=_ALL)
    return kernels[["rank", *(name for name in kernels.columns if name != "rank")]]


_ALL: Final = 1_000_000


def _trace_diff(analysis: Any, job: Job) -> Any:
    """Return HTA's comparison of two runs: all ranks and steps of both, the largest change of time first."""
    from hta.trace_diff import LabeledTrace, TraceDiff

    other = _load(job["other"])
    _refuse_expressions(other)
    both = [LabeledTrace(label=label, t=one.t) for label, one in (("control", analysis), ("test", other))]
    steps = [sorted(one.iterations()) for one in both]
    table = TraceDiff.compare_traces(
        *both,
        control_rank=both[0].ranks(),
        test_rank=both[1].ranks(),
        control_iteration=steps[0],
        test_iteration=steps[1],
    )
    return table.sort_values("diff_duration", key=abs, ascending=False)


def _critical_path(analysis: Any, job: Job) -> Any:
    import pandas as pd

    parts = []
    for rank in _ranks(job):
        graph, done = analysis.critical_path_analysis(rank, "ProfilerStep", job["instance"])
        edges = graph.get_critical_path_breakdown() if done else None
        if edges is None:
            raise ValueError(f"no critical path on rank {rank}")
        shares = (
            edges.groupby("bound_by", as_index=False)["duration"].sum().rename(columns={"duration": "duration(us)"})
        )
        share = 100 * shares["duration(us)"] / shares["duration(us)"].sum()
        parts.append(shares.assign(percentage=share.round(2)).sort_values("duration(us)", ascending=False))
        parts[-1].insert(0, "rank", rank)
    return pd.concat(parts, ignore_index=True)


def _ranks(job: Job) -> list[int]:
    return sorted(int(rank) for rank in job["files"])


ANALYSES: Final[dict[str, Callable[[Any, Job], Any]]] = {
    "temporal-breakdown": lambda hta, job: hta.get_temporal_breakdown(visualize=False),  # noqa: ARG005
    "comm-comp-overlap": lambda hta, job: hta.get_comm_comp_overlap(visualize=False),  # noqa: ARG005
    "kernel-breakdown": _kernels,
    "idle-time": lambda hta, job: hta.get_idle_time_breakdown(ranks=_ranks(job), visualize=False)[0],
    "launch-stats": _launch_stats,
    "queue-length": lambda hta, job: hta.get_queue_length_summary(ranks=_ranks(job)),
    "memory-bandwidth": lambda hta, job: hta.get_memory_bw_summary(ranks=_ranks(job)),
    "critical-path": _critical_path,
    "trace-diff": _trace_diff,
}

if __name__ == "__main__":
    main()
