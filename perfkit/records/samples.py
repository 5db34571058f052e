"""Samples of what a thread of a rank ran, as a trace's header has them, and the line of code that they lead to."""

from collections import defaultdict
from collections.abc import Iterable
from typing import Annotated, Final

from msgspec import Meta, Struct
from msgspec.structs import replace

from perfkit.records.common import Category
from perfkit.records.sums import add_rows

Whole = Annotated[int, Meta(ge=-(2**61), le=2**61)]
Index = Annotated[int, Meta(ge=-1, lt=2**31)]

MAIN: Final = -1
"""The process that trains, where others are numbers of a loader's workers."""


class SampledFunction(Struct, frozen=True, array_like=True):
    """A function of Python."""

    file: str
    """Relative to the folder that it was imported from."""
    name: str
    """Qualified, such as `Images.__getitem__`."""
    first_line: Whole


class SampledPlace(Struct, frozen=True, array_like=True):
    """A place in a function at which it was seen."""

    function: Index
    line: Whole
    """The line that ran."""
    call: str = ""
    """What the instruction called, as the source writes it, such as `time.sleep`; empty if it called nothing."""


class RecordedSample(Struct, frozen=True, array_like=True, gc=False):
    """What the thread ran at an instant."""

    ns: Whole
    """Time since the sample before."""
    cpu_ns: Whole
    """Processor time of the thread in that time."""
    waits: Whole
    """How often it began to wait in that time: for a lock, a file, another thread; not for a core."""
    stack: Index


class RecordedSamples(Struct, frozen=True, kw_only=True):
    """Samples of one thread in the order of time; each stands for the time since the one before."""

    worker: Whole = MAIN
    """Number of the loader's worker process."""
    begin_ns: Whole
    """Absolute, when sampling began."""
    interval_ns: Whole
    """Time from one sample to the next, where no C function delays it."""
    functions: list[SampledFunction]
    places: list[SampledPlace]
    stacks: list[list[Index]]
    """Places, innermost first."""
    samples: list[RecordedSample]


class CodeLocation(Struct, frozen=True, kw_only=True):
    """A line of the program, where a time was spent."""

    function: str
    """Qualified, such as `Images.__getitem__`."""
    file: str
    """Relative to the folder that it was imported from."""
    line: int
    """The line that ran longest of the function's."""
    call: str | None = None
    """What it called, as the source writes it, such as `time.sleep`; None if it called nothing, or several things."""
    ns: int
    """Time in the function, whatever it called included."""

    @property
    def text(self) -> str:
        """As in `colour_jitter, train.py:32`; of code outside of functions `train.py:32`."""
        where = f"{self.file.rpartition('/')[2]}:{self.line}"
        return where if self.function == "<module>" else f"{self.function}, {where}"


MOST_CODE_TIMES: Final = 50
"""Most functions of a rank that are kept."""


class CodeTime(Struct, frozen=True, kw_only=True):
    """Time of one category that the main thread was in a function of the program, summed over a rank's steps."""

    category: Category
    code: CodeLocation


def add_code_times(rows: Iterable[CodeTime]) -> list[CodeTime]:
    """Return one row per category and function, largest first."""
    added = add_rows(
        rows,
        lambda row: (row.category, row.code.file, row.code.function),
        (),
        lambda group: {"code": add_code(row.code for row in group)},
    )
    return sorted(added, key=lambda row: -row.code.ns)[:MOST_CODE_TIMES]


def add_code(locations: Iterable[CodeLocation | None]) -> CodeLocation | None:
    """Return the function with the most time of several locations, at the line of the longest; None without any."""
    by_function: defaultdict[tuple[str, str], list[CodeLocation]] = defaultdict(list)
    for one in locations:
        if one is not None:
            by_function[one.file, one.function].append(one)
    if not by_function:
        return None
    most = max(by_function.values(), key=lambda group: sum(one.ns for one in group))
    return replace(max(most, key=lambda one: one.ns), ns=sum(one.ns for one in most))
