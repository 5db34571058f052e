"""Where the skew of a start ends, for ranks whose traces begin with different collectives."""

import numpy as np
import pytest

from perfkit.engine.communication.collective_calls import COLUMNS
from perfkit.engine.ranks.last_arrivals import find_last_arrivals
from perfkit.engine.ranks.lateness import own_times
from perfkit.engine.ranks.matching import match
from tests.support.reports.report_builders import MS, make_rank, make_step
from tests.support.traces.calls_builder import make_calls

STEPS = 6


@pytest.mark.parametrize(
    ("late", "blamed"),
    [
        ({1, 2, 3, 4, 5}, None),
        ({1, 2}, None),
        ({1, 2, 4, 5}, [2]),
        ({4, 5}, [2]),
    ],
)
def test_a_rank_whose_trace_begins_later_may_be_late_from_there_on(late: set[int], blamed: list[int] | None) -> None:
    waits = [10 * MS if step in late else 0 for step in range(STEPS)]
    first, second = (make_calls([wait + MS for wait in waits], [0] * STEPS) for _ in range(2))
    third = make_calls([MS] * (STEPS - 1), [0] * (STEPS - 1))
    np.frombuffer(third.columns, np.int64).reshape(len(COLUMNS), -1)[COLUMNS.index("step")] += 1
    ranks = [make_rank(rank, [make_step(1, compute=50 * MS)]) for rank in range(3)]
    times = own_times(ranks)
    assert times is not None
    last = find_last_arrivals(match({0: first, 1: second, 2: third}), times, ranks)
    assert (last and last.ranks) == blamed
