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


def wait_until(condition: Callable[[], bool], timeout_s: float, poll_s: float = POLL_S) -> bool:
    """Wait until a condition holds; returns whether it does, which it may not after `timeout_s`."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() >= deadline:
            return False
        time.sleep(poll_s)
    return True
