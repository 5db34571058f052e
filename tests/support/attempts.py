"""What the tests of a module record: once for all of them, and again for each rerun of a test."""

from collections.abc import Callable
from typing import Generic, TypeVar

import pytest

Recorded = TypeVar("Recorded")


class Attempts(Generic[Recorded]):
    """Recordings by the number of the attempt at a test, which pytest would give the first one at every attempt."""

    def __init__(self, record: Callable[[], Recorded]) -> None:
        """Record nothing yet: the first test that asks does."""
        self._record = record
        self._recorded: list[Recorded] = []

    def at(self, request: pytest.FixtureRequest) -> Recorded:
        """Return what the attempt at a test uses."""
        attempt: int = getattr(request.node, "execution_count", 1)  # unset for tests that are not run again
        if len(self._recorded) < attempt:
            self._recorded.append(self._record())
        return self._recorded[attempt - 1]
