"""What several runs show together in words: scaling, options, strategies, history, and conditions on metrics."""

from collections.abc import Mapping, Sequence
from typing import Final

from perfkit.base.formatting import duration, format_value, ranges, rank_list, size
from perfkit.records.facts import Words
from perfkit.records.per_run.ledger import LedgerCause
from perfkit.report.wording.ledger import LABELS
from perfkit.tables.labels import INFERRED


def _few_sizes(fewest: int, sizes: int, oversubscribed: int) -> str:
    without = f", {oversubscribed} of them oversubscribed" if oversubscribed else ""
    return f"it needs {fewest} world sizes; there are {sizes}{without}"


def _scales(
    kind: str, ranks: int, efficiency: float, reference: int, lost: Sequence[tuple[LedgerCause, Sequence[int], float]]
) -> str:
    named = [f"{_part(cause, late)} ({points:.0f} point{'s' * (round(points) != 1)})" for cause, late, points in lost]
    mostly = f"; lost mostly to {' and '.join(named)}" if named else ""
    against = "" if reference == 1 else f" against {reference}"
    return f"{kind.capitalize()} scaling to {ranks} ranks: {100 * efficiency:.0f} % efficient{against}{mostly}"


def _part(cause: LedgerCause, late: Sequence[int]) -> str:
    if cause != "late_ranks":
        return {"compute": "more compute", "unrecorded": "steps that were not recorded"}.get(cause, LABELS[cause])
    return f"waiting for {rank_list(late)}" if late else "waiting for late ranks"


def _samples_inferred(sources: Sequence[str]) -> str:
    return f"samples per step are inferred from {' and '.join(INFERRED[one] for one in sources)}"


def _threads_differ(threads: Mapping[int, int]) -> str:
    by_size = ", ".join(f"{number} at {ranks}" for ranks, number in threads.items())
    return f"CPU threads per rank differ ({by_size} ranks), which affects computation scaling; fix it with --threads"


def _implausible(most: float, sizes: Sequence[int], kind: str, reference: int) -> str:
    caches = "smaller parts of the work may fit the caches better, or " if kind == "strong" else ""
    return (
        f"efficiency is above {100 * most:.0f} % at {ranges(sizes)} ranks: {caches}something may have slowed the steps "
        f"at {reference}, which the others are compared with: repeat those"
    )


def _fastest(name: str, other: str, ratio: float, doubt: str | None, saving: str | None, least: str | None) -> str:
    wins = f"{name} is fastest: {other} takes {ratio:.2f} times as long{doubt or ''}"
    return "; ".join(part for part in (wins, saving, least) if part)


def _saved_most(part: str, exposed: bool, fastest_ns: float, other_ns: float) -> str:
    what = f"exposed {part}" if exposed else part
    times = f"{duration(fastest_ns)} against {duration(other_ns)}"
    return f"most of the difference is {what}, {times} per profiled step"


def _collective(operator: str, size_bytes: float | None, dtype: str | None, group_size: int | None) -> str:
    among = f"of {group_size}" if group_size is not None else None
    return " ".join(filter(None, (operator, size(size_bytes) if size_bytes is not None else None, dtype, among)))


def _no_metric(metric: str, available: Sequence[str]) -> str:
    hint = " (all idle time is `overhead`)" if metric == "idle" else ""
    return f"no metric {metric}{hint}; available: {', '.join(available) or 'none'}"


def _limit_needed(metric: str, limit: str, example: str, of_step: bool) -> str:
    share = ", or a share of the step (30%)" if of_step else ""
    return f"{metric} needs {limit}, or a relative change ({example}){share}"


SENTENCES: Final[Words] = {
    "state": "its state is {state}",
    "no_warm_step": "no warm step was timed",
    "steps_not_comparable": "its steps cannot be compared",
    "cores_shared": "{ranks} ranks: {shared}; core sharing dominates the loss there",
    "threads_differ": _threads_differ,
    "scales": _scales,
    "scales_above_ideal": (
        "scaling to {ranks} ranks ({kind}) is not known: {efficiency:percent} of ideal shows a slow run on "
        "{reference}, or parts that fit the caches"
    ),
    "scales_not_shown": "scaling to {ranks} ranks ({kind}) is not shown: {shared}",
    "samples_inferred": _samples_inferred,
    "recorded_times": (
        "times are of recorded steps and include profiler overhead: not all runs have steps without the profiler"
    ),
    "implausible": _implausible,
    "few_repeats": (
        "fewer than three repeats at {sizes:ranges} ranks: no 95 % intervals there, at most the spread over steps"
    ),
    "no_trace": "no trace was recorded",
    "unequal_steps": "the ranks recorded different numbers of steps",
    "ranks_unknown": "rank numbers are unknown",
    "few_sizes": _few_sizes,
    "no_time_for_work": "the law does not fit these runs: it leaves no time for the work itself",
    "no_residuals": "no intervals: as many runs as parameters; repeat the runs",
    "law_not_fitted": "the universal scalability law cannot be fitted: {reason}",
    "law_deviates": "the universal scalability law deviates from these runs by {residual:percent} (RMS)",
    "batch_not_divisible": "the global batch of {batch} cannot be split over {ranks} ranks",
    "wide_forecast": "the interval is too wide to be useful: {low:.3g} to {high:.3g} samples/s",
    "compared_runs": lambda workload, options, batch: ", ".join(
        [workload, *options, *([f"batch {batch} per rank"] if batch else [])]
    ),
    "fastest": _fastest,
    "doubtful_of_few_runs": ", which with fewer than three runs of each cannot be told from noise",
    "doubtful": ", which cannot be told from noise",
    "saved_most": _saved_most,
    "least_memory": "{name} holds least: {least_bytes:size} per rank, against {fastest_bytes:size}",
    "no_manifest": "it has no run.json, so its start time and configuration are unknown",
    "manifest_damaged": "its run.json cannot be read, so its start time and configuration are unknown",
    "no_start_time": "its run.json has no valid start time",
    "no_traced_step": "none of its steps is in a trace (with --no-profile none is): a history compares those",
    "in_file": "{file}: {message}",
    "in_run": "{run}: {message}",
    "few_runs": "{runs} run{runs:||s}: at least {fewest} are needed to tell a lasting change from noise",
    "collective": _collective,
    "other_ranks_traced": "the traces before and after are from different ranks, and some ranks have none",
    "no_metric": _no_metric,
    "unknown_after": "{metric} is unknown for the runs after",
    "share_of_step": "{share:tenths} of the step",
    "limit_needed": _limit_needed,
    "figure": lambda value, unit: format_value(value, unit),
    "no_ratio": "{metric} has no value {side}, so its change is undefined",
    "no_value": "{what} has no {noun}",
    "not_before": "{what}: not in the earlier file",
    "measured": "{value} ({what})",
    "changed_by": lambda relative, before, after, what: (
        f"{100 * relative:+.1f} % ({before} before, {after} after{f'; {what}' if what else ''})"
    ),
    "above_noise": "{measured}, beyond the assumed noise",
    "undecided": "{measured} {why}",
    "noise_of_few_runs": (
        "cannot be told from noise with {before} run{before:||s} before and {after} after: repeat the runs, or state "
        "the noise (--assume-noise 3%)"
    ),
    "noise_of_few_repeats": (
        "cannot be told from noise with {repeats} repeat{repeats:||s}: use --repeats {fewest} or more, or state the "
        "noise (--assume-noise 3%)"
    ),
    "noise_unbounded": (
        "cannot be told from noise: the interval of the ratio is unbounded, because the value before may be 0"
    ),
    "within_assumed_noise": "is not more than the assumed noise",
    "within_run_variation": "is within run-to-run variation",
    "within_repeats": "is within the variation of the repeats or the assumed noise",
}
