"""Work by module, function, operator, phase and class adds up to the tables' totals, on generated and real traces."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfkit.engine.trace_summary import TraceSummary
from perfkit.records.per_rank.work import Work, WorkTree
from perfkit.records.per_rank.work_trees import add_work
from tests.support.traces import generated_traces as traces
from tests.support.traces.every_trace import every_real_trace, summary_of, summary_of_generated


def check(summary: TraceSummary) -> None:
    work = summary.work
    assert work is not None
    assert work.total_ns == sum(row.total_ns for row in summary.operators)
    assert work.count == sum(row.count for row in summary.operators)
    assert work.communication_bytes == sum((row.bytes or 0) * row.count for row in summary.collectives)
    if work.on == "device":
        exposed = [step.exposed_ns for step in summary.steps]
        assert work.exposed_ns == sum(one.compute + one.communication + one.memcpy for one in exposed)
    check_parts(work)
    doubled = add_work([work, work])
    assert doubled is not None
    assert doubled.total_ns == 2 * work.total_ns
    check_parts(doubled)


def check_parts(work: Work) -> None:
    assert sum(part.total_ns for part in work.phases) == work.total_ns
    assert sum(part.exposed_ns for part in work.phases) == work.exposed_ns
    assert sum(part.communication_bytes for part in work.phases) == work.communication_bytes
    assert sum(row.total_ns for row in work.classes) == work.total_ns
    assert sum(row.exposed_ns for row in work.classes) == work.exposed_ns
    assert sum(row.total_ns for row in work.kernels) <= work.total_ns
    for tree in work.trees:
        check_tree(tree, work)


def check_tree(tree: WorkTree, work: Work) -> None:
    roots = [node for node in tree.nodes if node.depth == 0]
    for field in ("count", "total_ns", "exposed_ns", "communication_bytes"):
        assert sum(getattr(node, field) for node in roots) == getattr(work, field), (tree.by, field)
    assert sum(node.self_ns for node in tree.nodes) == work.total_ns
    phases = {part.phase: part.total_ns for part in work.phases}
    assert sum(node.forward_ns for node in roots) == phases.get("forward", 0)
    assert sum(node.backward_ns for node in roots) == phases.get("backward", 0)
    for place, node in enumerate(tree.nodes):
        below = tree.nodes[place + 1 :]
        end = next((k for k, other in enumerate(below) if other.depth <= node.depth), len(below))
        children = [other for other in below[:end] if other.depth == node.depth + 1]
        assert node.self_ns + sum(child.total_ns for child in children) == node.total_ns, (tree.by, node)


@st.composite
def attributable(draw: st.DrawFn) -> dict[str, Any]:
    """Return a generated trace with sequence numbers of operators, and calls of modules and functions."""
    document = draw(traces.traces())
    for event in document["traceEvents"]:
        if event.get("cat") == "cpu_op" and draw(st.booleans()):
            event["args"] = {"Sequence number": draw(st.integers(-1, 3)), "Fwd thread id": draw(st.integers(0, 2))}
        if event.get("cat") == "python_function":
            event["name"] = draw(st.sampled_from(("nn.Module: A_0", "nn.Module: B_0", "nn.Module: B_1", "a.py(1): f")))
            event["dur"] = event.get("dur", 1) * draw(st.sampled_from((1, 1000)))
    return document


@traces.slow_to_generate
@given(document=attributable())
def test_generated_traces(document: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> None:
    summary = summary_of_generated(document, tmp_path_factory)
    if summary is not None:
        check(summary)


@every_real_trace
def test_real_traces(path: Path) -> None:
    check(summary_of(path))
