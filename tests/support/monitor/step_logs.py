"""Whole step logs."""

from pathlib import Path

import numpy as np

from perfkit.records.monitor import STEP_DTYPE
from perfkit.storage.step_log.reader import Records, StepLogReader


def read_steps(path: Path) -> Records:
    """Return the records of a log in their order."""
    reader = StepLogReader(path)
    parts = [np.zeros(0, STEP_DTYPE)]
    found = reader.read_new()
    while len(found.records) or found.damaged:
        parts.append(found.records)
        found = reader.read_new()
    return np.concatenate(parts)
