"""Charts of memory over a step."""

from typing import Final

from perfkit.base.formatting import in_ms
from perfkit.records.per_rank.memory import MEMORY_CATEGORIES, MEMORY_WORDS
from perfkit.records.rank import MemoryUse
from perfkit.records.run import RunReport
from perfkit.subjects.memory.tables import highest_use
from perfkit.tables.charts import Chart, RunChart, levels, stacked_levels
from perfkit.tables.labels import rank_label, step_label

_MOST_LINES: Final = 5
_NEAR_THE_LIMIT: Final = 0.25


def _memory(run: RunReport) -> Chart | None:
    """Return allocated memory over the step with the highest peak, of the ranks with the highest peaks.

    In a run with accelerators only device memory is shown: that is what runs out.
    """
    uses = [(rank, use) for rank in run.ranks for use in rank.memory]
    uses = [(rank, use) for rank, use in uses if use.device != "CPU"] or uses
    if not uses:
        return None
    shown = sorted(uses, key=lambda pair: -pair[1].peak.allocated_bytes)[:_MOST_LINES]
    names, shared = _unique_names([use for _, use in shown])
    left = f"The {len(shown)} highest peaks of {len(uses)}." if len(shown) < len(uses) else ""
    limits = [use.limit_bytes for _, use in shown if use.limit_bytes]
    most = shown[0][1].peak.allocated_bytes
    return levels(
        "Memory over the step" + (", against the device's limit" if limits else ""),
        [
            (f"rank {rank_label(rank.rank)}{name}", [in_ms(ns) for ns in use.curve.at_ns], use.curve.allocated_bytes)
            for name, (rank, use) in zip(names, shown, strict=True)
        ],
        label="ms since the host began the step",
        y="allocated",
        # A limit far above the lines would flatten them.
        limit=min(limits) if limits and most >= min(limits) * _NEAR_THE_LIMIT else None,
        note=" ".join(filter(None, (shared, left))),
    )


def _memory_by_category(run: RunReport) -> Chart | None:
    """Return allocated memory by category over the step with the highest peak, of the device that has it."""
    found = highest_use(run)
    curve = found.use.curve if found else None
    if found is None or curve is None or not curve.categories:
        return None
    return stacked_levels(
        "Memory over the step, by category",
        [in_ms(ns) for ns in curve.at_ns],
        [(MEMORY_WORDS[name], curve.categories[name]) for name in MEMORY_CATEGORIES if name in curve.categories],
        label="ms since the host began the step",
        y="allocated",
        note=f"{found.name[0].upper()}{found.name[1:]}, step {step_label(curve.step)}.",
    )


def _unique_names(uses: list[MemoryUse]) -> tuple[list[str], str]:
    """Return what the lines' names need besides their rank, and what all lines have in common."""
    parts = [(use.device, f"step {step_label(use.curve.step)}") for use in uses]
    common = [names[0] for names in zip(*parts, strict=True) if len(set(names)) == 1]
    different = ["".join(f", {part}" for part in mine if part not in common) for mine in parts]
    return different, f"{', '.join(common)}." if common else ""


CHARTS: Final[dict[str, RunChart]] = {
    "memory": RunChart(_memory, "a chart of memory needs traces recorded with profile_memory"),
    "memory_by_category": RunChart(
        _memory_by_category, "a chart of memory by category needs traces recorded with profile_memory"
    ),
}
