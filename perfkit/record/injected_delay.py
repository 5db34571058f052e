"""Delays put into a phase on purpose (`--inject`): in a file of its own, so that a trace shows them as no recording."""

import time
from collections import defaultdict
from collections.abc import Iterable

from perfkit.phases import Phase
from perfkit.records.manifest import Injection


class InjectedDelays:
    """The delays of one rank; a phase in several parts is delayed once per step."""

    def __init__(self, injections: Iterable[Injection], rank: int) -> None:
        self._delays_s: dict[Phase, float] = defaultdict(float)
        for injection in injections:
            if injection.rank in (None, rank):
                self._delays_s[injection.phase] += injection.delay_ns / 1e9
        self._left = dict(self._delays_s)

    def begin_step(self) -> None:
        self._left = dict(self._delays_s)

    def delay(self, phase: Phase) -> None:
        if delay_s := self._left.pop(phase, None):
            injected_delay(delay_s)


def injected_delay(seconds: float) -> None:
    time.sleep(seconds)
