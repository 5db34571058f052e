"""One sentence about what no trace of a report contains, and which option records it."""

from collections.abc import Iterable, Mapping
from typing import Final

from perfkit.schema.run import RunReport

_CONTENT: Final[Mapping[str, str]] = {
    "with_stack": "Python functions and modules",
    "record_shapes": "shapes of operators",
    "profile_memory": "allocations",
}
"""What the options of torch.profiler record."""


def not_recorded(runs: Iterable[RunReport]) -> list[str]:
    """Return the sentence; nothing if each is in some trace, or without traces."""
    recorded = [rank.recorded for run in runs for rank in run.ranks]
    missing = [
        f"{content} ({option})" for option, content in _CONTENT.items() if not any(option in own for own in recorded)
    ]
    if not recorded or not missing:
        return []
    how = "`perfkit run --detail why` records these" if len(missing) > 1 else "`perfkit run --detail why` records them"
    return [f"not recorded: {', '.join(missing)}: {how}, at a cost per step (docs/detail.md)."]
