"""Run perfkit with a rank that fails at the end of a step: sabotage.py HOW RANK STEP -- ARGUMENTS of perfkit."""

import os
import signal
import sys
import time
from collections.abc import Callable

from perfkit.__main__ import main
from perfkit.record.recording.recording import Recording

SIGNALS = {"kill": signal.SIGKILL, "stop": signal.SIGSTOP, "term": signal.SIGTERM}


def fail(how: str) -> None:
    if how == "raise":
        raise ValueError("the loss is no number")
    if how == "leave":
        sys.exit(0)
    if how == "vanish":
        os._exit(0)
    if how == "wait":  # for a signal from outside
        time.sleep(600)
    os.kill(os.getpid(), SIGNALS[how])


def sabotaged(step: Callable[..., None], how: str, rank: int, last: int) -> Callable[..., None]:
    def wrapper(self: Recording, *arguments: object) -> None:
        step(self, *arguments)
        if (self.rank, self.steps) == (rank, last):
            fail(how)

    return wrapper


if __name__ == "__main__":
    how, rank, last, _, *arguments = sys.argv[1:]
    Recording.step = sabotaged(Recording.step, how, int(rank), int(last))  # type: ignore[method-assign]
    sys.exit(main(arguments))
