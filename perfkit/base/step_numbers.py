"""A step's identity as one integer: its number, and in which series of numbers it is (metrics.md section 3)."""

from typing import Final

RESTART: Final = 10**12
"""What is added to a step's number for each time that the numbers had started again before it. So steps of a run are in
order, and of up to 9,000 series below 2**53, which all readers of JSON keep exactly."""


def numbered(step: int) -> str:
    """Return a step's number as its trace has it, after its series if that is not the first: `3`, `2:3`."""
    restarts, number = divmod(step, RESTART)
    return f"{restarts + 1}:{number}" if restarts else str(number)


def in_series(number: int, series: int) -> int:
    """Return the step of a number in a series, which count from 1."""
    return number + (series - 1) * RESTART
