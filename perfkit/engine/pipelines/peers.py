"""Find the peers of the sends and receives of perfkit's own pipelines, which traces of gloo do not name.

The header of the trace lists the sends and receives of one step in their order of issue, and all steps are alike.
"""

from collections.abc import Sequence

import numpy as np

from perfkit.engine.communication.collective_metadata import OPERATORS
from perfkit.records.trace_header import RecordedMessage
from perfkit.trace.events import MOST_RANKS
from perfkit.trace.intervals import Ints


def find_peers(operator: Ints, step: Ints, messages: Sequence[RecordedMessage]) -> Ints:
    """Return the rank on the other side of each send and receive; -1 for other collectives, and if it is unknown.

    A step that has more or fewer of them than the list is not one of the pipeline's usual ones: none of its peers is
    known.

    Args:
        operator: operator of each collective, as in `perfkit.engine.communication.collective_metadata`, in
            order of issue; shape (c,).
        step: step of each.
        messages: what the header lists.
    """
    peer = np.full(len(operator), -1, np.int64)
    for name in ("send", "recv"):
        listed = np.array([message.peer for message in messages if message.operator == name], np.int64)
        listed[(listed < 0) | (listed >= MOST_RANKS)] = -1
        rows = np.flatnonzero(operator == OPERATORS.index(name))
        rows = rows[np.argsort(step[rows], kind="stable")]
        _, first, count = np.unique(step[rows], return_index=True, return_counts=True)
        for begin in first[count == len(listed)].tolist():
            peer[rows[begin : begin + len(listed)]] = listed
    return peer
