"""Changes of a run in words: what they apply to, what their prediction assumes, and why some cannot be made."""

from collections.abc import Sequence
from typing import Final

from perfkit.base.formatting import duration, escape_unprintable
from perfkit.engine.whatif.change import ChangeError, Effect
from perfkit.records.facts import Words
from perfkit.records.per_run.whatif import AppliedChange
from perfkit.tables.words import in_words

_LISTED: Final = 8
_LONGEST: Final = 60
_LONGEST_CHANGE: Final = 80
"""Characters of a name, and of a change, that a message repeats."""


def word_applied(text: str, effect: Effect) -> AppliedChange:
    """Return what a change, as given, applies to and assumes."""
    assumptions = [in_words([one], ASSUMPTIONS) for one in effect.assumptions]
    return AppliedChange(change=text, applies_to=in_words(effect.applies_to, APPLIES_TO), assumptions=assumptions)


def word_refusal(error: ChangeError) -> str:
    """Return why a change cannot be read or predicted."""
    about = f"change {_short(error.change, _LONGEST_CHANGE)}: " if error.change else ""
    return about + in_words([error.why], REFUSALS)


def _short(text: str, most: int = _LONGEST) -> str:
    escaped = escape_unprintable(text)
    return escaped if len(escaped) <= most else escaped[: most - 1] + "…"


def _nothing_matches(what: str, has: Sequence[str]) -> str:
    more = f" and {len(has) - _LISTED} more" if len(has) > _LISTED else ""
    known = f"the run has {', '.join(map(_short, has[:_LISTED]))}{more}" if has else "the run has none"
    return f"no {what} matches; {known}"


def _in_groups(size: int | None, of: int) -> str:
    groups = "of unknown size" if size is None else f"of {size} ranks"
    return f"some collectives are in groups {groups}, not of all {of}: which of them would grow is not known"


_AS_OTHERS: Final = "each operator, kernel and cause of idle time takes {} in the same step"

APPLIES_TO: Final[Words] = {
    "per_step": "{ns:duration} per step",
    "on_most": " on the rank with the most",
    "names": "{count} {count:|name|names}, ",
    "modules": "{count} {count:|module|modules}, ",
    "own_work": "its own work, ",
    "waits": "{count:.3g} waits per step and rank, calls of ",
    "kernels_become": "{before:.3g} kernels per step and rank become {after:.3g}",
    "transfers": lambda count, ns: (
        f"{count:.3g} transfer{'' if f'{count:.3g}' == '1' else 's'} per step and rank, {duration(ns)} each; "
    ),
    "of_ranks": "{count} ranks, ",
    "buckets_become": "{before:.3g} buckets per step and rank of {size:size} become {after:.3g}",
    "reductions": "{count:.3g} reductions per step and rank, ",
    "collectives": "{count:.3g} collectives per step and rank",
    "micro_steps_of": "{count} per step, of {ns:duration} each",
}
ASSUMPTIONS: Final[Words] = {
    "all_else_stays": "everything else takes as long as before",
    "kernels_change": "the kernels that these operators launch change, not the host's part of them",
    "host_changes": "only the host's part of these operators changes: they launch no kernel themselves",
    "launching_stays": "kernels change, and the host takes as long to launch them",
    "module_code_changes": "operators and the Python code between them change; collectives take as long as before",
    "modules_launch_nothing": "only the host's time in these modules changes: they launch no kernel",
    "modules_unnamed": "the traces have classes and numbers of modules, not their names in the program",
    "transfers_stay": "transfers take as long as before",
    "as_other_ranks": _AS_OTHERS.format("the median of the other ranks"),
    "as_ranks": _AS_OTHERS.format("the median of {ranks:|rank|ranks} {ranks:ranges}"),
    "as_usual_rank": _AS_OTHERS.format("that of the rank with the lower median of all own times"),
    "workers_keep_up": "loader workers, if any, keep up with the shorter step",
    "thread_stays": "what else the thread does takes as long as before",
    "profiler_stays": "what the profiler adds to each operator is not in the trace, and stays",
    "copied_ahead": "what is copied is needed later, and is copied beside other work",
    "no_value_needed": "the host needs none of the values that it waited for",
    "runs_ahead": "the host may run ahead of the device by any number of steps",
    "fused_takes_sum": "a fused kernel takes as long as its parts together, and is launched where the first of them "
    "was",
    "launch_calls_saved": "the launch calls of the others are saved, the operators' other work on the host is not",
    "transfers_alone": "transfers alone change: ranks still wait for the last one to join",
    "transfers_may_wait": "what looks like transfer is no waiting for ranks without a trace",
    "latency_fitted": "latency as fitted to the run: {fits}",
    "latency_of": "{operator} {us:.3g} µs",
    "latency_unknown": "transfers take time in proportion to their size: the run has too few sizes to tell their "
    "latency",
    "weak_scaling": "each rank has as much work as before (weak scaling), and links and latency are as between the "
    "recorded ranks",
    "first_ranks": "the first {count} of the recorded ranks are left",
    "more_ranks_on_time": "further ranks are never later than the recorded ones: with more ranks, waiting grows",
    "evenly_ready": "the gradients of a bucket that is split become ready evenly since the bucket before it",
    "one_by_one": "the same collectives follow one after the other, and take as long as they did beside computation",
    "repeats_all": "each micro-step repeats everything from the begin of the step until its last gradients are ready "
    "to be averaged, loading included, without collectives",
    "last_reduces": "the last of {count} micro-batches reduces the gradients of all",
    "hooks_stay": "the host's work for these reductions stays",
    "did_not_accumulate": "the run did not accumulate before",
}
REFUSALS: Final[Words] = {
    "no_such_change": "there is no such change; write {examples:list}",
    "contradict": lambda changes: (
        f"changes {' and '.join(_short(one, _LONGEST_CHANGE) for one in changes)} contradict "
        "each other: give one of them"
    ),
    "unexpected": lambda value, expected: f"'{_short(value, _LONGEST_CHANGE)}' is not {expected}",
    "word": lambda word: word or "expected here",
    "factor": "0 or a factor up to {most:.0f}x, such as 0.5x",
    "rank_factor": "healthy, 0 or a factor up to {most:.0f}x, such as 0.5x",
    "positive_factor": "a factor above 0 up to {most:.0f}x, such as 2x",
    "duration": "a duration from 1ns to 1000ms, such as 5us",
    "size": "a size from 1 B to 1 TiB, such as 50MB or 25MiB",
    "micro_steps": "a number of micro-steps from 1 to {most}",
    "ranks_from_one": "a number of ranks from 1 to {most}",
    "nothing_matches": _nothing_matches,
    "operator_or_kernel": "operator or kernel",
    "module": "module that takes time",
    "collective": "collective",
    "copies": "copies",
    "data_loading": "data loading",
    "idle_time": "idle time",
    "profiler": "work of the profiler",
    "synchronisation": "synchronisation with a device",
    "no_such_rank": "there is no trace of rank {rank}, but of {ranks:ranges}",
    "no_other_rank": "there are no traces of other ranks to compare with",
    "no_modules": "the traces contain no calls of modules: record them with --with-stack (with_stack=True)",
    "no_launches": "the traces have no launches of kernels",
    "no_short_kernels": "no two consecutive kernels with separate launches are shorter{shortest}",
    "shortest": "; the shortest takes {ns:duration}",
    "network_is_healthy": "no transfer is known to be slow",
    "no_collectives": "the run has no collectives to predict others from",
    "in_groups": _in_groups,
    "waits_for_itself": "these changes contradict the order of the steps: a part would have to wait for itself",
    "nothing_overlaps": "no rank does anything between a collective and the wait for it",
    "no_gradients": "the traces do not show where a step's gradients are complete (no collective averages them)",
    "reduced_once": "the run is not known to reduce DDP's buckets in each of several micro-batches",
    "no_buckets": "the run has no all-reduces of gradients that overlap with backward",
    "sizes_unknown": "the traces do not contain the sizes of the buckets (record with --record-shapes)",
}
