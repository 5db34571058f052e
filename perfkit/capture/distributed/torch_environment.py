"""Environment variables that torch reads once, before it creates a process group; without torch."""

import os
from typing import Final

_FLIGHT_RECORDER_ENTRIES: Final = 10_000
"""A ring buffer, large enough for the collectives of one cycle."""


def enlarge_flight_recorder() -> None:
    """Let torch's flight recorder keep the collectives of a whole cycle, unless the user has set its size."""
    os.environ.setdefault("TORCH_FR_BUFFER_SIZE", str(_FLIGHT_RECORDER_ENTRIES))
