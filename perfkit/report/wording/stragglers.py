"""Late ranks in words: which, by how much, in what, what that costs, and what to do about it."""

from collections.abc import Sequence
from typing import Final

from perfkit.base.formatting import duration, escape_unprintable, rank_list
from perfkit.base.step_numbers import RESTART, numbered
from perfkit.engine.runs.data_loading import slow_samples, slow_worker
from perfkit.records.common import Category
from perfkit.records.cross_rank import EarlyRank, LateLoading, OneOffStraggler, Straggler, take_turns
from perfkit.records.facts import Words
from perfkit.report.wording.ledger import capital
from perfkit.report.wording.loading import SENTENCES as LOADING
from perfkit.report.wording.loading import WAIT_WORDS
from perfkit.tables.words import in_words

_NAMED: Final = 4
"""Most ranks that a sentence names one by one."""
_ALIKE: Final = 0.9
"""Ratio of two durations, the shorter to the longer, from which they are written as one."""
_MOST: Final = 0.5
"""Share of a delay from which what the profiler adds is named."""
_HARDLY_ANY: Final = 0.1
"""Share of a delay up to which what it costs is not measurable."""
_ORDINALS: Final = {2: "second", 3: "third"}


def stragglers_sentence(stragglers: Sequence[Straggler], gain_ns: int | None, profiler_ns: int = 0) -> str:
    """Return a sentence about the ranks that are late in more than one step.

    Args:
        stragglers: at least one, largest lag first.
        gain_ns: what the mean step could save if none were late; None if unknown.
        profiler_ns: what the profiler adds to a step; 0 if that is not measurable.
    """
    return _who_is_late(stragglers, gain_ns) + _profiler_clause(stragglers, profiler_ns)


def _who_is_late(stragglers: Sequence[Straggler], gain_ns: int | None) -> str:
    if take_turns(stragglers):
        return _turns(stragglers) + _cost(gain_ns)
    if len(stragglers) == 1:
        return _one(stragglers[0])
    single = None if any(row.gain_ns is None for row in stragglers) else max(row.gain_ns or 0 for row in stragglers)
    is_less = single is not None and gain_ns and single < _ALIKE * gain_ns
    alone = f" ({_at_most(single or 0)} if only one of them were fixed)" if is_less else ""
    return _several(stragglers) + _cost(gain_ns) + alone


def _profiler_clause(stragglers: Sequence[Straggler], profiler_ns: int) -> str:
    """Return what idle time of late ranks may owe to the profiler, where it adds at least half of a delay.

    A rank that calls more functions or operators than the others is slowed down more.
    """
    idle = [row for row in stragglers if row.category == "overhead" and profiler_ns >= _MOST * row.lag_ns]
    return f"; the profiler adds {duration(profiler_ns)} per step, which may be part of it" if idle else ""


def _one(row: Straggler) -> str:
    lag_ns, cause = row.lag_ns, _cause(row)
    if row.every > 1:
        lag = duration(row.in_category_ns)
        return f"rank {row.rank} is late {how_often(row)}, by {lag} ({cause}){_cost(row.gain_ns)}{_in_most(row)}"
    if row.also:
        parts = (f"{duration(one.lag_ns)} {_in_words(one.category)}" for one in row.also)
        cause = ", ".join((f"{duration(row.in_category_ns)} {cause}", *parts))
    if _is_partly(row):
        delays = f"rank {row.rank} delays {whom(row)} {how_often(row)}"
        return f"{delays}, by {duration(lag_ns)} ({cause}){_cost(row.gain_ns)}"
    if _ALIKE * lag_ns <= (row.gain_ns or 0) <= lag_ns / _ALIKE:
        return (
            f"rank {row.rank} delays {whom(row)} by {duration(row.gain_ns or 0)} per step ({cause}); "
            f"it is last in {row.steps_last} of {row.steps} steps"
        )
    longer = f"rank {row.rank} takes {duration(lag_ns)} per step longer than {whom(row)} ({cause})"
    return f"{longer}{_cost(row.gain_ns, lag_ns)}"


def _in_most(row: Straggler) -> str:
    """Return a clause with what a rank that is late in every n-th step takes longer in besides, in most steps."""
    if not row.also:
        return ""
    lags = " and ".join(f"{duration(one.lag_ns)} longer in {_in_words(one.category)}" for one in row.also)
    return f"; besides, it takes {lags} in most steps"


def whom(row: Straggler | OneOffStraggler) -> str:
    """Return the ranks that a late one can delay, in words: where nothing links it with all, not all others."""
    return rank_list(row.delays) if row.delays else "the others"


def _several(stragglers: Sequence[Straggler]) -> str:
    if host := stragglers[0].host:
        lag, causes = _range([row.lag_ns for row in stragglers]), dict.fromkeys(map(_short_cause, stragglers))
        who = f"all {len(stragglers)} ranks of {escape_unprintable(host)} are late"
        return f"{who} {how_often(stragglers[0])}, by {lag} ({' or '.join(causes)})"
    named = [f"rank {row.rank} {_by(row, _short_cause(row))}" for row in stragglers]
    rest = f" and {len(named) - _NAMED} more ranks" if len(named) > _NAMED else ""
    if all(_is_partly(row) for row in stragglers):  # together these may be all ranks
        return f"{len(stragglers)} ranks are late: {', '.join(named[:_NAMED])}{rest}"
    others = "the others of their groups" if any(row.delays for row in stragglers) else "the others"
    return f"{len(stragglers)} ranks take longer than {others}: {', '.join(named[:_NAMED])}{rest}"


def _is_partly(row: Straggler) -> bool:
    """Return whether a rank is late in some steps only."""
    return row.every > 1 or row.steps_late < row.steps


def how_often(row: Straggler) -> str:
    """Return in which steps a rank is late, in words."""
    if row.every > 1:
        return f"in every {_ordinal(row.every)} step"
    match row.first_step, row.last_step:
        case int(first), int(last):
            return f"in steps {numbered(first)} to {numbered(last)}"
        case int(first), None:
            return f"from step {numbered(first)} on"
        case None, int(last):
            return f"up to step {numbered(last)}"
    return f"in {row.steps_late} of {row.steps} steps" if row.steps_late < row.steps else "per step"


def _turns(stragglers: Sequence[Straggler]) -> str:
    lag = _range([row.lag_ns for row in stragglers])
    causes = " or ".join(dict.fromkeys(_short_cause(row) for row in stragglers))
    count = [str(row.steps_late) for row in sorted(stragglers, key=lambda row: row.rank)]
    irregular = any(row.every == 1 for row in stragglers) and len(count) <= _NAMED
    often = f", in {', '.join(count[:-1])} and {count[-1]} of {stragglers[0].steps} steps" if irregular else ""
    return f"{name_ranks(stragglers)} take turns{often}: one of them is late in each step, by {lag} ({causes})"


def name_ranks(stragglers: Sequence[Straggler]) -> str:
    """Return the numbers of stragglers in words: `ranks 1, 3 and 4`."""
    return rank_list([row.rank for row in stragglers])


def _cost(gain_ns: int | None, lag_ns: int = 0) -> str:
    if gain_ns is None:
        return ""
    if gain_ns <= _HARDLY_ANY * lag_ns:
        return ", which costs no measurable time: no rank waits for it alone" if lag_ns else ""
    return f"; without that, a step could be up to {duration(gain_ns)} shorter"


def _at_most(gain_ns: int) -> str:
    return f"up to {duration(gain_ns)}" if gain_ns > 0 else "nothing"


def _ordinal(number: int) -> str:
    return _ORDINALS.get(number, f"{number}th")


def category_name(row: Straggler) -> str:
    """Return the category, and the phase if it is known, in which a rank is late, in words."""
    return _in_words(row.category) + phase_clause(row)


def _cause(row: Straggler) -> str:
    """Return why a single rank is late."""
    loading = row.loading
    return f"{category_name(row)}: {load_clause(loading)}" if loading else category_name(row)


def load_clause(loading: LateLoading) -> str:
    """Return what a rank waits for in data loading, with the worker or sample."""
    if loading.worker:
        return f"waiting for its {in_words((slow_worker(loading.worker),), LOADING)}"
    if loading.cause == "slow_sample":
        return f"waiting for {in_words((slow_samples(loading.sample, loading.more_samples),), LOADING)}"
    return WAIT_WORDS[loading.cause]


def _short_cause(row: Straggler) -> str:
    """Return why one of several ranks is late."""
    return f"{category_name(row)}: {WAIT_WORDS[row.loading.cause]}" if row.loading else category_name(row)


def phase_clause(row: Straggler) -> str:
    """Return a clause with the phase in which a rank is late; empty if that is not known."""
    return f" in {row.phase}" if row.phase else ""


def early_sentence(early: Sequence[EarlyRank], *, besides_late: bool) -> str:
    """Return which ranks compute for less time than the others, and by how much.

    Args:
        early: at least one.
        besides_late: whether some of the others are late, with which they are not compared.
    """
    computes, waits = ("computes", "waits") if len(early) == 1 else ("compute", "wait")
    who, lead = rank_list([row.rank for row in early]), _range([row.lead_ns for row in early])
    others = "the others that are not late" if besides_late else "the others"
    return f"{who} {computes} {lead} less per step than {others}, and {waits} for them"


def _range(sizes_ns: Sequence[int]) -> str:
    """Return durations as one where they are nearly the same, else the shortest and the longest."""
    shortest, longest = min(sizes_ns), max(sizes_ns)
    return duration(longest) if shortest >= _ALIKE * longest else f"{duration(shortest)} to {duration(longest)}"


def one_off_cause(late: OneOffStraggler) -> str:
    """Return the category in which a rank takes longer in one step, and by how much."""
    if late.category is None:
        return "cause not identified"
    return f"{_in_words(late.category)} +{duration(late.category_ns)}"


def _in_words(category: Category) -> str:
    # The report's tables call overhead idle.
    return {"overhead": "idle time", "memcpy": "copies"}.get(category, category.replace("_", " "))


def one_off_step(late: OneOffStraggler) -> str:
    """Return the step in which ranks are late, and whether the one before was recorded: numbers may have gaps."""
    if not late.is_first:
        return f"step {numbered(late.step)}"
    if late.step % RESTART == 0:
        return f"step {numbered(late.step)}, with no step before it"
    return f"step {numbered(late.step)}, with step {numbered(late.step - 1)} not recorded on all ranks"


def _by(row: Straggler, cause: str) -> str:
    """Return by how much a rank is late, how often, and in what."""
    return f"by {duration(row.lag_ns)} {how_often(row)} ({cause})"


def _of(ranks: Sequence[int], what: str, *, is_first: bool) -> str:
    """Return what is said of some of several late ranks."""
    return f"{'' if is_first else '; '}{rank_list(ranks)}: {what}"


SENTENCES: Final[Words] = {
    "early_ranks": early_sentence,
    "few_to_do": lambda early, besides_late: capital(early_sentence(early, besides_late=besides_late)),
    "other_ranks": "other ranks",
    "none_is_late": ", none of which is late beyond chance in all steps",
    "too_few_steps": " (too few steps to tell which of them are late)",
    "damaged_traces": " (traces are damaged: whether one of them is late is not known)",
    "last_arrivals": "{ranks:ranks}, last at {of} collectives",
    "of_all": "all {count}",
    "of_some": "{count} of {all}",
    "longer_runs": "as many {kind}s as on {whom}, in {times:.3g} times the time",
    "more_runs": "{runs:figures} {what} per step, {usual:figures} on {whom}",
    "reason_of": lambda ranks, what, is_first: _of(ranks, what, is_first=is_first),
    "plural": "{kind}s",
    "the_others": "the others",
    "ranks": "{ranks:ranks}",
    "pause_on": "{phase}{caller} on rank {rank}",
    "called_by": " ({caller})",
}

REMEDIES: Final[Words] = {
    "fix_all": lambda count, alone: (
        f"fix {'both' if count == 2 else f'all {count}'}{': one alone saves nothing' if alone else ''}; "
    ),
    "find_turns": lambda every: (
        "find what each of the ranks does "
        + (f"in one of {every} steps only" if every > 1 else "only in the steps in which it is late")
    ),
    "remedy_of": lambda ranks, what, is_first: _of(ranks, what, is_first=is_first),
    "find_only_there": "find what {ranks:ranks} do that the others do not",
    "find_in_late_steps": "find what each of the ranks does in the steps in which it is late",
    "find_longer": "find what {ranks:ranks} {ranks:|does|do} longer",
    "more_steps": (
        "; record at least {least} steps: {steps:|one does|{steps} do} not tell whether "
        "{ranks:|it always is|they always are} late"
    ),
    "find_compiled": (
        "find what is compiled or loaded in {where}, and why for longer than on other ranks (what torch compiles "
        "again: TORCH_LOGS=recompiles)"
    ),
    "steps_of": "steps of {ranks:ranks}",
    "step_on": "step {step:step} on {ranks:ranks}",
    "and": " and ",
    "on_some_steps": lambda ranks, row: f"on {rank_list(ranks)} {how_often(row)}",
    "in_steps": "in {steps}",
    "may_be_start": "; a step in which recording begins may also contain what starting the profiler costs",
    "partly_compute": ("check for more work (larger inputs, an evaluation), a slower device or a shared one {where}"),
    "partly_overhead": "find what runs {where} only: a log, a checkpoint, garbage collection",
    "partly_memcpy": "find what is copied {where} only: a checkpoint, values to log",
    "partly_data_loading": "find what is loaded {where} only: large samples, or files that are not cached yet",
    "partly_unknown": "find what runs {where} only: an evaluation, a checkpoint, a log",
    "check_compute": "check for more work, a slower device or a shared one on {ranks:ranks}",
    "check_overhead": "check launches, Python and synchronisation on {ranks:ranks}, and what else runs there",
    "check_memcpy": ("check how copies are made on {ranks:ranks}: use pinned memory, and cores close to the device"),
    "check_launches": "check for more launches, a slower core or a shared one on {ranks:ranks}",
    "check_larger_inputs": "check for larger inputs, a slower device or a shared one on {ranks:ranks}",
    "check_clock": "check the clock and power limit of {ranks:ranks}: nvidia-smi -q -d CLOCK,PERFORMANCE,POWER",
    "check_memory": "check the memory of {ranks:ranks}, and what else uses it: nvidia-smi -q -d ECC,ROW_REMAPPER,CLOCK",
    "check_core": "check the core that {ranks:ranks} {ranks:|runs|run} on: its clock, and what else runs there",
    "check_one": (
        "compare what {name} works on with the other ranks: if {ranks:|it has|they have} more (tokens of an expert), "
        "divide it evenly"
    ),
    "check_batches": "compare the sizes of batches on {ranks:ranks} with the others': divide by length, not by number",
    "check_launched": "find what else is launched on {ranks:ranks}",
    "find_more_runs": "find why {name} runs more often on {ranks:ranks}",
    "find_computed": "find what else is computed on {ranks:ranks}",
    "more_work": (
        "give {ranks:ranks} more of the work: {ranks:|it has|they have} less of it than the others, or "
        "{ranks:|is|are} faster"
    ),
    "synchronise_less": "synchronise less often{own:|: --accumulate|}",
    "see_timeline": "perfkit merge shows all ranks on one timeline: see what differs between them, and between steps",
    "checkpoint_waited_for": (
        "let each rank write its part (torch.distributed.checkpoint), asynchronously or less often"
    ),
    "evaluation_waited_for": "divide the evaluation evenly over all ranks, or evaluate less often",
    "logging_waited_for": "log less often, or in another thread",
}
