"""The data of a page's flame graphs."""

from typing import Any, Final

from perfkit.base.formatting import escape_unprintable
from perfkit.python_functions import PYTHON_FUNCTION
from perfkit.records.per_run.flame_graph import FlameGraph, FlameView, FlameWeight
from perfkit.records.run import RunReport
from perfkit.tables.labels import rank_label

_WHAT: Final[dict[FlameWeight, str]] = {
    "samples": "time of the main thread",
    "device": "device time",
    "host": "time of operators on the host",
}
_BY: Final[dict[FlameView, str]] = {"python": "function", "module": "module"}


def flames(run: RunReport) -> list[dict[str, Any]]:
    """Return the flame graphs of a run for its page: frames as depth, name and length in ns, flat."""
    return [_flame(graph) for graph in run.flame_graphs]


def _flame(graph: FlameGraph) -> dict[str, Any]:
    return {
        "by": "sampled" if graph.weight == "samples" else f"by {_BY[graph.by]}",
        "title": f"{_WHAT[graph.weight]} of rank {rank_label(graph.rank)} by {_BY[graph.by]}, mean step",
        "total_ns": graph.total_ns,
        "names": [_shown(name) for name in graph.names],
        "lanes": graph.lanes,
        "frames": [value for frame in zip(graph.depth, graph.name, graph.duration_ns, strict=True) for value in frame],
        "left_out": graph.left_out,
    }


def _shown(name: str) -> str:
    """Return a name as a frame shows it: of a Python function, first what it is called, then where it is."""
    found = PYTHON_FUNCTION.fullmatch(escape_unprintable(name))
    return f"{found['function']}  {found['file']}:{found['line']}" if found else escape_unprintable(name)
