"""What the step's length depends on: the longest path through the graph of its steps."""

from typing import Final

from perfkit.analysis.subject import Subject

SUBJECT: Final = Subject(
    rank={"graph": lambda trace: trace.graph},
    run={"critical_path": lambda run: run.graph.path(run.ranks, run.world_size)},
)
