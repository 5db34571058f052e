"""What analysis states, in the words that reports have of it."""

from collections.abc import Callable
from typing import ParamSpec, TypeVar

from perfkit.engine.runs import profiler_cost as profiler
from perfkit.report.wording import worded
from perfkit.subjects.comparison import changes as comparison
from perfkit.subjects.comparison import gates
from perfkit.subjects.roofline import achieved
from perfkit.subjects.scaling import option_comparison, summary
from perfkit.subjects.scaling import strategies as ways

GivenT = ParamSpec("GivenT")
ResultT = TypeVar("ResultT")


def _in_words(function: Callable[GivenT, ResultT]) -> Callable[GivenT, ResultT]:
    return lambda *given, **options: worded(function(*given, **options))


scaling = _in_words(summary.scaling)
option_comparisons = _in_words(option_comparison.option_comparisons)
strategy_comparisons = _in_words(ways.strategy_comparisons)
changes = _in_words(comparison.changes)
check_gates = _in_words(gates.check_gates)
roofline = _in_words(achieved.roofline)
profiler_cost = _in_words(profiler.profiler_cost)
