"""`perfkit.data_loading()`: a program marks where it loads data, if its loader is none of torch's.

It does nothing unless the program has imported torch, so that the call can stay where it is.
"""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from perfkit.phases import DATA_LOADING

LISTENERS: Final[list[tuple[Callable[[], object], Callable[[], object]]]] = []


def while_loading(begin: Callable[[], object], end: Callable[[], object]) -> Callable[[], None]:
    """Call `begin` and `end` around what is marked, until what this returns is called."""
    listener = begin, end
    LISTENERS.append(listener)
    return lambda: LISTENERS.remove(listener)


@contextmanager
def data_loading() -> Iterator[None]:
    """Mark time as data loading: in traces, by perfkit or torch.profiler, and in the monitor's record of each step.

    Around what gives the training loop its batch, in the thread that trains::

        with perfkit.data_loading():
            x, y = get_batch("train")

    It also decorates a function that returns a batch: `@perfkit.data_loading()`. What a thread loads ahead needs no
    mark; the wait for it does. Marks within others, or within torch's `DataLoader`, are parts of these.
    """
    if "torch" not in sys.modules:
        yield
        return
    from perfkit.record.spans import begin_span, end_span

    listeners = LISTENERS.copy()
    for begin, _ in listeners:
        begin()
    span = begin_span(DATA_LOADING)
    try:
        yield
    finally:
        end_span(span)
        for _, end in listeners:
            end()
