"""Situations that the answer is about: each gives a report, as `perfkit analyze` makes it."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from perfkit.records.report import Report
from tests.support.situations import records, traces

Make = Callable[[Path], Report]
SITUATIONS: Final[Mapping[str, Make]] = {**traces.SITUATIONS, **records.SITUATIONS}
"""By name; each is given an empty folder, the current one, to write into."""
