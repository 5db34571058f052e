"""The event that runs at a launch, for all events at once and group by group, against brute force."""

from typing import Final

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfkit.engine.kinds import classify
from perfkit.trace.events import CollectiveArgsColumns, EventKind, Events

event = st.tuples(st.integers(0, 40), st.integers(0, 12), st.integers(0, 1), st.booleans())
"""Start, duration, thread, whether it is a candidate."""

NONE: Final = np.zeros(0, np.int64)
EVERY_LAUNCH_BY_ITSELF: Final = (1, 1 << 20)
ALL_AT_ONCE: Final = (1 << 16, 8)


@pytest.mark.parametrize("limits", [ALL_AT_ONCE, (4, 8), EVERY_LAUNCH_BY_ITSELF])
@given(st.lists(event, min_size=1, max_size=24), st.data())
def test_chunks_of_time_find_what_all_at_once_find(
    limits: tuple[int, int], drawn: list[tuple[int, int, int, bool]], data: st.DataObject
) -> None:
    launches = data.draw(st.lists(st.integers(-1, len(drawn) - 1), max_size=24))
    start, duration, thread, candidate = (np.array(column, np.int64) for column in zip(*drawn, strict=True))
    events = Events(
        kind=np.full(len(drawn), EventKind.OPERATOR, np.uint8),
        name=np.zeros(len(drawn), np.int32),
        start_ns=start,
        end_ns=start + duration,
        thread=thread.astype(np.int32),
        correlation=np.full(len(drawn), -1, np.int64),
        names=("aten::mm",),
        collective_args=CollectiveArgsColumns(row=NONE, number=NONE.astype(np.int32), sequence=NONE, args=()),
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(classify, "_CHUNK", limits[0])
        patch.setattr(classify, "_MAX_CHUNKS", limits[1])
        found = classify.innermost_at_launch(events, np.array(launches, np.int64), candidate.astype(np.bool_)).tolist()
    for launch, row in zip(launches, found, strict=True):
        running = [
            other
            for other, (begin, lasts, where, is_candidate) in enumerate(drawn)
            if launch >= 0 and is_candidate and where == drawn[launch][2] and begin <= drawn[launch][0] < begin + lasts
        ]
        assert (row >= 0) == bool(running)
        if running:  # of equal spans any will do
            assert drawn[row][:2] == max((drawn[other][:2] for other in running), key=lambda span: (span[0], -span[1]))
