"""Speed and memory of the graph of a step, its replay and its critical path.

    python -m tests.benchmarks.bench_graph --megabytes 400

The trace is made as large as asked by repeating a real one, and all of its steps are one graph, without the limit that
`perfkit analyze` sets. Times are CPU seconds of each part by itself; memory is what the graph's columns hold, and by
how much the process grew from the read trace to the finished graph.
"""

import argparse
import resource
import tempfile
from collections.abc import Callable
from pathlib import Path
from time import process_time
from typing import Final, TypeVar

from perfkit.engine.step_graph.graph import StepGraph
from perfkit.engine.step_graph.join import Member, join_ranks
from perfkit.engine.step_graph.replay import critical_path, replay, slack
from perfkit.pipeline.summarize import summarize_trace
from perfkit.trace.reader import read_trace
from tests.benchmarks.make_trace import repeat

_SOURCE: Final = Path("tests/data/traces/nccl-metadata-1of2/rank0.json.gz")
T = TypeVar("T")


def main() -> None:
    """Parse the command line and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--megabytes", type=int, default=400, help="size of the JSON")
    size = parser.parse_args().megabytes * 1_000_000
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "rank0.json")
        repeat(_SOURCE, size, path)
        trace = read_trace(path)
    events, before_mb = len(trace.events.kind), peak_mb()
    _, least_s = timed(lambda: summarize_trace(trace, path.name, graph_events=1))
    found, whole_s = timed(lambda: summarize_trace(trace, path.name, graph_events=events))
    own = found.graph
    assert own is not None
    columns = own.columns()
    print(f"{events:,} events: {len(columns.nodes.start):,} nodes, {len(columns.edges.source):,} dependencies")
    print(f"{'':34}{'CPU s':>8}{'us/event':>10}")
    row("analysis with the graph of a step", least_s, events)
    row("graph of all steps", whole_s - least_s, events)
    graph, joined_s = timed(lambda: join_ranks({0: Member(own, 0)}, own.steps, None, [], None))
    row("lags and order", joined_s, events)
    for name, work in (("replay", replay), ("critical path", critical_path)):
        row(name, timed(lambda work=work: work(graph))[1], events)  # type: ignore[misc]
    row("slack", timed(lambda: slack(graph))[1], events)
    print(f"{held_mb(graph):,.0f} MB of columns; the process grew by {peak_mb() - before_mb:,.0f} MB")


def timed(work: Callable[[], T]) -> tuple[T, float]:
    """Return a result and the CPU seconds that it took."""
    begin = process_time()
    result = work()
    return result, process_time() - begin


def row(name: str, seconds: float, events: int) -> None:
    """Print one line of the table."""
    print(f"{name:34}{seconds:8.2f}{1e6 * seconds / events:10.2f}")


def held_mb(graph: StepGraph) -> float:
    """Return the memory of a graph's columns."""
    tables = (graph.nodes, graph.edges, graph.parts)
    return sum(column.nbytes for table in tables for column in table) / 2**20


def peak_mb() -> float:
    """Return the largest memory that the process had so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


if __name__ == "__main__":
    main()
