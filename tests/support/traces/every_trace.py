"""The traces that every property is checked on: those that ship, and generated ones."""

from pathlib import Path
from typing import Any, Final

import pytest

from perfkit.engine.trace_summary import TraceSummary
from perfkit.errors import TraceError
from perfkit.pipeline.summarize import summarize_trace
from perfkit.trace.reader import read_trace
from tests.support.traces import trace_builder

REAL: Final = Path(__file__).parents[2] / "data" / "traces"
every_real_trace = pytest.mark.parametrize(
    "path", sorted(REAL.rglob("*.json.gz")), ids=lambda path: f"{path.parent.name}-{path.stem}"
)


def summary_of(path: Path) -> TraceSummary:
    return summarize_trace(read_trace(path), path.name)


def summary_of_generated(document: dict[str, Any], paths: pytest.TempPathFactory) -> TraceSummary | None:
    """Return the summary of a generated trace; None if it has neither a step nor work."""
    path = trace_builder.write(document, paths.getbasetemp() / "generated.json")
    try:
        return summary_of(path)
    except TraceError:
        return None
