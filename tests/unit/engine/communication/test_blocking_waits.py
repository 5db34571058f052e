"""Waits for a collective within the operator that issued it, such as a custom autograd function on the CPU."""

from pathlib import Path

import pytest

import perfkit
from tests.support.traces.trace_builder import TraceBuilder

BACKWARD = "autograd::engine::evaluate_function: SumBackward"


def shares(folder: Path, builder: TraceBuilder) -> tuple[int, int]:
    """Return compute and communication of the one step (us), after checks of what must add up."""
    path = folder / "rank0.json"
    builder.write(path)
    (rank,) = perfkit.analyze(path, cache=False).runs[0].ranks
    (step,) = rank.steps
    assert sum(getattr(step.exposed_ns, name) for name in step.exposed_ns.__struct_fields__) == step.wall_ns
    assert sum(row.total_ns for row in rank.operators if row.category == "compute") == step.exposed_ns.compute
    return step.exposed_ns.compute // 1000, step.exposed_ns.communication // 1000


def issuing(*, name: str = BACKWARD, length: int = 9000, issue: str = "c10d::allreduce_") -> TraceBuilder:
    """A function that computes 500 us, issues a collective in 100 us, and lasts longer."""
    builder = TraceBuilder(0, 2, backend="gloo").step(0, 0, 20_000)
    return builder.op(name, 1000, length).op("aten::clone", 1100, 400).op(issue, 1500, 100)


@pytest.mark.parametrize("name", [BACKWARD, "Sum"])
def test_a_function_that_waits_is_communication_until_the_collective_has_ended(tmp_path: Path, name: str) -> None:
    builder = issuing(name=name).gloo("all_reduce", 1550, 8300)  # ends 150 us before the function
    assert shares(tmp_path, builder) == (500 + 150, 100 + 8250)


def test_a_wait_ends_with_the_next_operator_in_the_function(tmp_path: Path) -> None:
    builder = issuing().gloo("all_reduce", 1550, 4300).op("aten::add", 5900, 1000)
    assert shares(tmp_path, builder) == (500 + 50 + 1000 + 3100, 100 + 4250)


@pytest.mark.parametrize(
    ("begin", "end"),
    [
        (1550, 15_000),  # not waited for: as DDP's gradients, it runs on beside what follows
        (1550, 6000),  # the function goes on much later: it computed, and did not wait
        (1200, 9900),  # of another issue: it began before this one
    ],
)
def test_other_collectives_do_not_make_a_function_communication(tmp_path: Path, begin: int, end: int) -> None:
    compute, _ = shares(tmp_path, issuing().gloo("all_reduce", begin, end - begin))
    assert compute == 9000 - 100


def test_without_an_issue_in_it_a_function_computes(tmp_path: Path) -> None:
    builder = TraceBuilder(0, 2, backend="gloo").step(0, 0, 20_000).op("Sum", 1000, 9000)
    builder.op("aten::clone", 1100, 400).gloo("all_reduce", 1550, 8400)
    assert shares(tmp_path, builder)[0] == 9000
