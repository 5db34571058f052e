"""Analysis and records have no prose: sentences are made in `perfkit.report.wording`."""

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
    # Errors of bad input, which a message is raised with.
    "analysis/per_rank/operator_work/arguments.py",
    "analysis/per_rank/summary.py",
    "analysis/per_run/jobs.py",
    # Why a field of a record is unknown.
    "analysis/cross_rank/bandwidth.py",
    "analysis/cross_rank/efficiency.py",
    "analysis/cross_rank/pipelines/bubbles.py",
    "analysis/per_run/profiler_cost.py",
    "analysis/per_run/report_builder.py",
    "analysis/per_run/roofline.py",
    # The verdict, and what it says of late ranks, loaders and pauses.
    "analysis/cross_rank/straggler_sentences.py",
    "analysis/per_rank/loading/sentences.py",
    "analysis/per_run/bubble_verdict.py",
    "analysis/per_run/loading_causes.py",
    "analysis/per_run/pauses.py",
    "analysis/per_run/verdict.py",
    "schema/cross_rank.py",
    "schema/per_run/heavy_stages.py",
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


def test_analysis_and_records_make_no_sentences() -> None:
    found = Counter(
        path.relative_to(SOURCES).as_posix()
        for room in ("engine", "subjects", "records")
        for path in (SOURCES / room).rglob("*.py")
        for _ in prose(path)
    )
    assert set(found) == LEFT
