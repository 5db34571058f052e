"""Engine, subjects and records have no prose: `perfkit.report.wording` has it; tables and charts format values."""

import ast
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import perfkit

SOURCES = Path(perfkit.__file__).parent
FORMATTING: Final = {
    "difference",
    "duration",
    "figures",
    "format_percent",
    "format_percents",
    "percent_change",
    "rank_list",
    "ranges",
    "rate",
    "size",
    "whole_percent",
}
FEWEST_WORDS: Final = 3
LEFT: Final = {
    # Errors of bad input, which a message is raised with, and why a change does not apply.
    "engine/hangs/flight_dump.py",
    "engine/hangs/folder.py",
    "engine/runs/jobs.py",
    "engine/trace_summary.py",
    "engine/whatif/changes.py",
    "engine/whatif/effects/device.py",
    "engine/whatif/effects/effect.py",
    "engine/whatif/effects/gradients.py",
    "engine/whatif/effects/modules.py",
    "engine/whatif/effects/own_time.py",
    "engine/whatif/effects/transfers.py",
    "subjects/comparison/benchmark_gates.py",
    "subjects/comparison/gates.py",
    "subjects/roofline/operator_work/arguments.py",
    # What keeps the ranks of a hang waiting.
    "engine/hangs/calls.py",
    "engine/hangs/messages.py",
    "engine/hangs/places.py",
    "engine/hangs/rules.py",
    # Why a field of a record is unknown.
    "engine/pipelines/bubbles.py",
    "engine/ranks/bandwidth.py",
    "engine/ranks/efficiency.py",
    "engine/run_context.py",
    "engine/runs/profiler_cost.py",
    "subjects/comparison/history.py",
    "subjects/roofline/achieved.py",
    "subjects/scaling/efficiency_loss.py",
    "subjects/scaling/forecast.py",
    "subjects/scaling/laws.py",
    "subjects/scaling/option_comparison.py",
    "subjects/scaling/series.py",
    "subjects/scaling/strategies.py",
    "subjects/scaling/summary.py",
    # Names of changes and metrics.
    "subjects/comparison/changes.py",
    "subjects/comparison/metrics.py",
    # Fills templates.
    "records/facts.py",
}
"""Modules with sentences or formatted figures that are still to move. Delete a row with its last sentence."""


def prose(path: Path) -> Iterator[str]:
    """Yield the sentences that a module fills with values, and what it imports to write figures for people."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.JoinedStr):
            text = " ".join(str(part.value) for part in node.values if isinstance(part, ast.Constant))
            if sum(word.strip("(),;:'").isalpha() for word in text.split()) >= FEWEST_WORDS:
                yield text
        if isinstance(node, ast.ImportFrom) and node.module == "perfkit.base.formatting":
            yield from (name.name for name in node.names if name.name in FORMATTING)


def test_engine_subjects_and_records_make_no_sentences() -> None:
    found = Counter(
        path.relative_to(SOURCES).as_posix()
        for room in ("engine", "subjects", "records")
        for path in (SOURCES / room).rglob("*.py")
        if path.name not in ("tables.py", "charts.py")
        for _ in prose(path)
    )
    assert set(found) == LEFT
