"""Waits for what a thread or a process does."""

import time
from collections.abc import Callable
from typing import Final

from perfkit.record.own_threads import all_threads

MOST_S: Final = 120.0
"""Longer than anything takes that tests wait for, on a slow machine that does much else."""


def wait_until(condition: Callable[[], object]) -> None:
    """Wait until something holds; fail if it does not for very long."""
    deadline = time.monotonic() + MOST_S
    while not condition():
        assert time.monotonic() < deadline, f"it never came: {condition}"
        time.sleep(0.01)


def wait_for_threads(name: str) -> None:
    """Wait until the threads of a name have ended."""
    wait_until(lambda: not any(thread.name == name for thread in all_threads()))
