"""Repeats a run that other programs on the machine disturbed, as the run's own clock shows."""

import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Final

from perfkit.storage.run_folder import read_manifest

_ATTEMPTS: Final = 3
_STEADY: Final = 0.1
"""Greatest spread of the recorded steps of an undisturbed run, as a share of their median."""


def record_steady(record: Callable[[int], Path]) -> Path:
    """Return the first run whose recorded steps take equally long, or else the last one.

    Args:
        record: Records a run, whose steps do the same work, for the attempt's number; returns its folder.
    """
    for attempt in range(_ATTEMPTS):
        folder = record(attempt)
        if _spread(folder) <= _STEADY:
            break
    return folder


def _spread(folder: Path) -> float:
    manifest = read_manifest(folder)
    spreads = []
    for rank in manifest.ranks:
        kinds = zip(rank.step_wall_ns, manifest.step_kinds, strict=False)
        walls = [wall for wall, kind in kinds if kind == "active"]
        spreads.append((max(walls) - min(walls)) / statistics.median(walls))
    return max(spreads)
