"""Environment variables that torch reads once, before it creates a process group; without torch."""

import os
from typing import Final

_FLIGHT_RECORDER_ENTRIES: Final = 10_000
"""A ring buffer, large enough for the collectives of one cycle; torch's own size is 2,000.

It grows until it is full, by about 1.3 kB per collective, most of it the Python stack: to 13 MB in each rank.
"""


def enlarge_flight_recorder() -> None:
    """Let torch's flight recorder keep the collectives of a whole cycle, unless the user has set its size.

    For runs that are to record traces: others need not have the memory.
    """
    os.environ.setdefault("TORCH_FR_BUFFER_SIZE", str(_FLIGHT_RECORDER_ENTRIES))
