"""`rank<R>.earlier_steps.json`: how long the steps before a capture took, on one rank."""

from typing import Final

from msgspec import Struct

EARLIER_STEPS_VERSION: Final = 1


class EarlierSteps(Struct, frozen=True, kw_only=True):
    """The last steps before a capture, one entry per step, oldest first."""

    schema_version: int = EARLIER_STEPS_VERSION
    rank: int
    step: list[int]
    end_ns: list[int]
    """Unix time."""
    step_ns: list[int]
    """By the host's clock, without checkpoints, evaluations and logging."""
    load_ns: list[int | None]
    """Host time spent waiting for the batch; None if unknown, as for a script."""
