"""Sentences about stragglers: which ranks are late, by how much, in what, and what that costs."""

from collections.abc import Sequence
from typing import Final

from perfkit.schema.common import Category
from perfkit.schema.cross_rank import (
    CrossRankSummary,
    EarlyRank,
    LateLoading,
    OneOffStraggler,
    Straggler,
    one_off_place,
)
from perfkit.schema.per_rank.loading import WaitCause
from perfkit.util.formatting import duration, rank_list

_NAMED: Final = 4
"""Most ranks that a sentence names one by one."""
_ALIKE: Final = 0.9
"""Ratio of two durations, the shorter to the longer, from which they are told as one."""
_MOST: Final = 0.5
_HARDLY_ANY: Final = 0.1
_ORDINALS: Final = {2: "second", 3: "third"}
_LOAD_CAUSES: Final[dict[WaitCause, str]] = {
    "reading": "waiting for storage or a free core",
    "transforming": "computing samples",
    "collating": "collating batches",
    "transfer": "handing finished batches over, or waiting for a free core",
    "slow_worker": "a slow worker",
    "slow_sample": "a slow sample",
    "workers_busy": "too few workers",
    "other": "not in the loader's fetches",
}


def stragglers_sentence(stragglers: Sequence[Straggler], gain_ns: int, profiler_ns: int = 0) -> str:
    """Return a sentence about the ranks that are late in more than one step.

    Args:
        stragglers: at least one, largest lag first.
        gain_ns: what the mean step could save if none were late.
        profiler_ns: what the profiler adds to a step; 0 if that is not measurable.
    """
    return _who_is_late(stragglers, gain_ns) + _profiler_clause(stragglers, profiler_ns)


def _who_is_late(stragglers: Sequence[Straggler], gain_ns: int) -> str:
    if take_turns(stragglers):
        return _turns(stragglers) + _cost(gain_ns)
    if len(stragglers) == 1:
        return _one(stragglers[0])
    single = max(row.gain_ns for row in stragglers)
    alone = f" ({_at_most(single)} if only one of them were fixed)" if gain_ns and single < _ALIKE * gain_ns else ""
    return _several(stragglers) + _cost(gain_ns) + alone


def _profiler_clause(stragglers: Sequence[Straggler], profiler_ns: int) -> str:
    """Return what idle time of late ranks may owe to the profiler, where it adds at least half of a delay.

    A rank that calls more functions or operators than the others is slowed down more.
    """
    idle = [row for row in stragglers if row.category == "overhead" and profiler_ns >= _MOST * row.lag_ns]
    return f"; the profiler adds {duration(profiler_ns)} per step, which may be part of it" if idle else ""


def _one(row: Straggler) -> str:
    lag, cause = duration(row.lag_ns), _cause(row)
    if _is_partly(row):
        return f"rank {row.rank} is late {how_often(row)}, by {lag} ({cause}){_cost(row.gain_ns)}{_in_most(row)}"
    if _ALIKE * row.lag_ns <= row.gain_ns <= row.lag_ns / _ALIKE:
        return (
            f"rank {row.rank} delays {whom(row)} by {duration(row.gain_ns)} per step ({cause}){_also(row)}; "
            f"it is last in {row.steps_last} of {row.steps} steps"
        )
    more = ", and more in some steps" if row.gain_ns > row.lag_ns else ""
    longer = f"rank {row.rank} takes {lag} per step longer than {whom(row)} ({cause}){more}"
    return f"{longer}{_cost(row.gain_ns, row.lag_ns)}{_also(row)}"


def _also(row: Straggler) -> str:
    """Return a clause with what else a rank takes longer in, which mending the first would not mend."""
    if not row.also:
        return ""
    return f", besides {' and '.join(f'{duration(one.lag_ns)} in {_in_words(one.category)}' for one in row.also)}"


def _in_most(row: Straggler) -> str:
    """Return a clause with what a rank that is late in every n-th step takes longer in besides, in most steps."""
    if row.every == 1 or not row.also:
        return ""
    lags = " and ".join(f"{duration(one.lag_ns)} longer in {_in_words(one.category)}" for one in row.also)
    return f"; besides, it takes {lags} in most steps"


def whom(row: Straggler | OneOffStraggler) -> str:
    """Return the ranks that a late one can delay, in words: where nothing links it with all, not all others."""
    return rank_list(row.delays) if row.delays else "the others"


def _several(stragglers: Sequence[Straggler]) -> str:
    named = [f"rank {row.rank} by {duration(row.lag_ns)} {how_often(row)} ({_short_cause(row)})" for row in stragglers]
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
    return f"in {row.steps_late} of {row.steps} steps" if row.steps_late < row.steps else "per step"


def _turns(stragglers: Sequence[Straggler]) -> str:
    lag = _range([row.lag_ns for row in stragglers])
    causes = " or ".join(dict.fromkeys(_short_cause(row) for row in stragglers))
    count = [str(row.steps_late) for row in sorted(stragglers, key=lambda row: row.rank)]
    irregular = any(row.every == 1 for row in stragglers) and len(count) <= _NAMED
    often = f", in {', '.join(count[:-1])} and {count[-1]} of {stragglers[0].steps} steps" if irregular else ""
    return f"{name_ranks(stragglers)} take turns{often}: one of them is late in each step, by {lag} ({causes})"


def take_turns(stragglers: Sequence[Straggler]) -> bool:
    """Return whether exactly one of them is late in each step, in turns: those of two stages may take turns apart."""
    if len(stragglers) < 2 or not all(row.in_turns and row.one_at_a_time for row in stragglers):
        return False
    # Each stage with late ranks adds all of its steps.
    return sum(row.steps_late for row in stragglers) == stragglers[0].steps


def name_ranks(stragglers: Sequence[Straggler]) -> str:
    """Return the numbers of stragglers in words: `ranks 1, 3 and 4`."""
    return rank_list([row.rank for row in stragglers])


def _cost(gain_ns: int, lag_ns: int = 0) -> str:
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
    if loading.cause == "slow_worker" and loading.culprit:
        return f"waiting for its {loading.culprit}"
    return f"waiting for {loading.culprit}" if loading.culprit else _LOAD_CAUSES[loading.cause]


def _short_cause(row: Straggler) -> str:
    """Return why one of several ranks is late."""
    return f"{category_name(row)}: {_LOAD_CAUSES[row.loading.cause]}" if row.loading else category_name(row)


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
    return "idle time" if category == "overhead" else category.replace("_", " ")


def one_off_clause(compared: CrossRankSummary, waited_ns: float) -> str:
    """Return a clause that names the one-off delays if most of the waiting is due to them; else an empty string.

    Args:
        compared: the cross-rank analysis.
        waited_ns: exposed waiting, summed over ranks and steps.
    """
    late = one_off_causes(compared, waited_ns)
    if not late:
        return ""
    named = ", ".join(f"{one_off_place(one)} ({one_off_cause(one)})" for one in late)
    return f", most of it for {named}"


def one_off_causes(compared: CrossRankSummary, waited_ns: float) -> list[OneOffStraggler]:
    """Return the one-off delays if they explain most of the exposed waiting (ns, summed over ranks); else none."""
    others = len(compared.rank_waits) - 1
    explained_ns = sum(
        (len(one.delays) or others - len(one.with_ranks)) * one.lag_ns for one in compared.one_off_stragglers
    )
    return compared.one_off_stragglers if explained_ns > _MOST * waited_ns else []
