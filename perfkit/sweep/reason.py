"""Why one configuration of a sweep is faster than another: where the recorded steps differ."""

from pathlib import Path
from typing import Final

from perfkit.errors import PerfkitError
from perfkit.schema.common import CATEGORIES
from perfkit.schema.sweep import SweepConfiguration
from perfkit.storage.run_folder import list_files
from perfkit.util.formatting import duration

_MOST_BYTES: Final = 60_000_000
"""Larger traces (compressed, of the two runs) would keep the end of a sweep waiting."""
_MAIN_SHARE: Final = 0.5
"""Smallest share of the whole difference that is called the reason."""
_NAMES: Final = {
    "compute": "computation",
    "communication": "exposed communication",
    "memcpy": "copying",
    "data_loading": "waiting for data",
    "overhead": "idle time",
}


def why_faster(folder: Path, faster: SweepConfiguration, slower: SweepConfiguration) -> list[str]:
    """Return the sentence that names where the recorded steps of two configurations differ most.

    Empty if their steps do different amounts of work, if the recorded steps do not confirm the difference, if
    no category makes up half of it, or if the traces are missing, damaged or large.
    """
    if faster.samples_per_step != slower.samples_per_step or faster.ranks != slower.ranks:
        return []
    runs = [folder / faster.runs[0], folder / slower.runs[0]]
    try:
        if sum(_trace_bytes(run) for run in runs) > _MOST_BYTES:
            return []
        fast_ns, slow_ns = (_mean_step_ns(run) for run in runs)
    except (PerfkitError, OSError):  # the sweep is complete without its explanation
        return []
    if not fast_ns or not slow_ns:
        return []
    saved_ns = {name: slow_ns[name] - fast_ns[name] for name in CATEGORIES}
    whole_ns = sum(saved_ns.values())
    name = max(CATEGORIES, key=lambda category: saved_ns[category])
    if whole_ns <= 0 or saved_ns[name] < _MAIN_SHARE * whole_ns:
        return []
    return [
        f"Mainly less {_NAMES[name]}: {duration(fast_ns[name])} instead of {duration(slow_ns[name])} "
        "per recorded step and rank."
    ]


def _trace_bytes(run: Path) -> int:
    return sum((run / file.path).stat().st_size for file in list_files(run) if file.kind == "trace")


def _mean_step_ns(run: Path) -> dict[str, float]:
    """Return the exposed time by category (ns), mean over recorded steps and ranks; empty without any."""
    from perfkit.pipeline.analyze import analyze  # numpy
    from perfkit.report.content.aggregates import exposed_sums, steps_of

    (report,) = analyze(str(run), executor="serial").runs
    steps = steps_of(report)
    return dict(zip(CATEGORIES, (ns / len(steps) for ns in exposed_sums(steps)), strict=True)) if steps else {}
