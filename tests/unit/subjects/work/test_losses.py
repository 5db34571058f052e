"""Which way exposed copies go, where others are hidden behind computation."""

import pytest
from msgspec.structs import replace

from tests.support.reports.report_builders import MS, make_operator
from tests.unit.pipeline.test_insights import found, run_of, the

PAGEABLE, TO_HOST = "Memcpy HtoD (Pageable -> Device)", "Memcpy DtoH (Device -> Pageable)"


@pytest.mark.parametrize(
    ("to_host_ms", "said"),
    [
        (9, ": from the host"),
        (11, ""),  # more than half of what is exposed may be these
        (300, ""),  # most copies go this way, but all of them may be hidden
    ],
)
def test_hidden_copies_are_not_taken_for_exposed_ones(to_host_ms: int, said: str) -> None:
    """Of a step of 96 ms, 20 ms are exposed copies; a copy to the host of `to_host_ms` is hidden, as far as it can."""
    run = run_of({"compute": 76 * MS, "memcpy": 20 * MS})
    (rank,) = run.ranks
    copies = [
        make_operator(PAGEABLE, category="memcpy", total_ns=4 * 20 * MS),
        make_operator(TO_HOST, category="memcpy", total_ns=4 * to_host_ms * MS),
    ]
    one = the("copies", found(replace(run, ranks=[replace(rank, operators=copies)])))
    assert one.sentence == f"Copies, 20.0 ms{said}"
    assert "read results back" not in one.recommendation
