"""Repeats a run that other programs on the machine disturbed, as the run's own clock shows."""

import math
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Final

from perfkit.storage.run_folder import read_manifest

_ATTEMPTS: Final = 5
_STEADY: Final = 0.1
"""Greatest spread of the recorded steps of an undisturbed run, as a share of their median."""


def record_steady(record: Callable[[int], Path]) -> Path:
    """Return the first run whose recorded steps take equally long, or else the one in which they differ least.

    Args:
        record: Records a run, whose steps do the same work, for the attempt's number; returns its folder.
    """
    spreads: dict[Path, float] = {}
    while len(spreads) < _ATTEMPTS and min(spreads.values(), default=math.inf) > _STEADY:
        folder = record(len(spreads))
        spreads[folder] = _spread(folder)
    return min(spreads, key=spreads.__getitem__)


def _spread(folder: Path) -> float:
    manifest = read_manifest(folder)
    spreads = []
    for rank in manifest.ranks:
        kinds = zip(rank.step_wall_ns, manifest.step_kinds, strict=False)
        walls = [wall for wall, kind in kinds if kind == "active"]
        spreads.append((max(walls) - min(walls)) / statistics.median(walls))
    return max(spreads)
