"""What the step's length depends on: the longest path through the graph of its steps."""

from typing import Final

from perfkit.engine.run_context import RunContext
from perfkit.engine.subject import Subject
from perfkit.records.per_run.critical_path import CriticalPath


def _critical_path(run: RunContext) -> CriticalPath | None:
    """Return the critical path; None without ranks, or if they recorded different steps."""
    graph, unaligned = run.graph.graph, run.graph.unaligned
    if graph is None:
        return None
    from perfkit.subjects.critical_path.summarize import summarize_path

    recorded = max(len(rank.steps) for rank in run.ranks)
    return summarize_path(graph, recorded, max(0, run.world_size - len(run.ranks)), unaligned)


SUBJECT: Final = Subject(
    tables="perfkit.subjects.critical_path.tables:tables",
    charts="perfkit.subjects.critical_path.charts:CHARTS",
    rank={"graph": lambda trace: trace.graph},
    run={"critical_path": _critical_path},
    in_answer=False,
)
