"""How often something that nobody announces is looked for."""

import time
from collections.abc import Callable
from typing import Final

POLL_S: Final = 0.02
"""For what is about to happen on this host: a process starts or ends, a file is written. It costs little to look."""
SHARED_POLL_S: Final = 0.1
"""For files of other ranks, in a folder that all of them read."""
WATCH_S: Final = 1.0
"""For what may never happen: by a thread that runs as long as the program."""
_RANKS_PER_S: Final = 1000
"""More ranks watch less often: all of them ask the same file server or store."""


def watch_s(ranks: int) -> float:
    """Return how often each of so many ranks looks for what may never happen, in seconds."""
    return max(WATCH_S, ranks / _RANKS_PER_S)


def wait_until(condition: Callable[[], bool], timeout_s: float, poll_s: float = POLL_S) -> bool:
    """Wait until a condition holds; returns whether it does, which it may not after `timeout_s`."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() >= deadline:
            return False
        time.sleep(poll_s)
    return True
