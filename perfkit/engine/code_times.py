"""Which functions of the program the time of a rank's steps was in, by category (metrics.md section 28)."""

from collections.abc import Iterator
from typing import Final

import numpy as np

from perfkit.engine.breakdown import Activity
from perfkit.engine.samples import HostSamples
from perfkit.engine.steps.windows import Steps
from perfkit.records.common import CATEGORIES, Category
from perfkit.records.samples import MOST_CODE_TIMES, CodeLocation, CodeTime
from perfkit.trace.intervals import Ints, Union, complement, difference, merge, split

_OF_THE_HOST: Final[tuple[Category, ...]] = ("data_loading", "overhead")
"""Categories in which the host does what takes the time, where a device computes."""


def tabulate_code(samples: HostSamples, activity: Activity, steps: Steps, has_device: bool) -> list[CodeTime]:
    """Return the functions of the program by time, largest first; those of samples within the steps."""
    rows = [
        CodeTime(category=category, code=code)
        for category, spans in _exclusive_spans(activity, steps)
        if not has_device or category in _OF_THE_HOST
        for code in _functions(samples, category, split(spans, steps.bounds))
    ]
    return sorted(rows, key=lambda row: -row.code.ns)[:MOST_CODE_TIMES]


def _functions(samples: HostSamples, category: Category, spans: Union) -> list[CodeLocation]:
    if category == "data_loading":
        return samples.functions_of(*samples.taken_in(spans))
    return samples.functions_in(spans)


def _exclusive_spans(activity: Activity, steps: Steps) -> Iterator[tuple[Category, Union]]:
    """Yield each category with the spans that count for it (metrics.md section 4)."""
    first, last = steps.bounds[[0, -1]].tolist()
    outside = merge(_outside(steps.bounds), steps.pauses.spans)
    busy = outside
    for category in CATEGORIES[:-1]:
        spans: Union = getattr(activity, category)
        yield category, difference(spans, busy)
        busy = merge(busy, spans)
    yield CATEGORIES[-1], complement(busy, first, last)


def _outside(bounds: Ints) -> Union:
    """Return the time before the first step and after the last."""
    far = 1 << 62
    return Union(np.array([-far, bounds[-1]], np.int64), np.array([bounds[0], far], np.int64))
