"""Delays put into a phase on purpose (`--inject`): a function of its own, so that a trace shows it as no recording."""

import time


def injected_delay(seconds: float) -> None:
    time.sleep(seconds)
