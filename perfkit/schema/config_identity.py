"""What tells one configuration from another: the one place that says so, for sweeps, comparisons, histories and series.

Each of those leaves out more where it compares more (the batch, say), but none has another idea of what a run's folder
has to do with it: nothing.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from perfkit.schema.run import RunReport

_PLACES: Final = ("config", "name", "trace_dir")
"""Options that say where a run lies or was read from, and nothing of what it is."""


def identity_options(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return a configuration without what says where its run lies: a moved sweep is still the same sweep.

    The `data_dir` that a run has where it is given none, beside the runs, is None.
    """
    default = str(Path(str(config.get("trace_dir", ""))) / ".data")
    own = {name: value for name, value in config.items() if name not in _PLACES}
    if own.get("data_dir") == default:
        own["data_dir"] = None
    return own


def performance_options(run: RunReport) -> dict[str, Any]:
    """Return the options of `run` that touch what is measured; none without a manifest."""
    idle = {"timeout", "data_dir"} if run.source == "memory" else {"timeout"}
    return {name: value for name, value in identity_options(run.config or {}).items() if name not in idle}
