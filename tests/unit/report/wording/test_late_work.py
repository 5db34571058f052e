"""What late ranks do more of, or more slowly, in a headline; and a host that is late as a whole."""

from typing import Any

import pytest
from msgspec.structs import replace

from perfkit.records.cross_rank import LateWork
from perfkit.records.per_run.ledger import LedgerRow
from perfkit.report.wording.ledger import label, takes
from perfkit.report.wording.stragglers import stragglers_sentence
from tests.support.reports.report_builders import MS
from tests.unit.pipeline.test_insights import make_straggler

ROW = LedgerRow(cause="late_ranks", ns=12 * MS, share=0.09, ranks=[3], late="always", late_in="compute")
BEGIN = "Rank 3 delays every step by 12.0 ms (9 %): "


@pytest.mark.parametrize(
    ("work", "told"),
    [
        ({}, "every kernel takes 1.1 times as long."),
        ({"of": "memory_bound"}, "memory-bound kernels take 1.1 times as long."),
        ({"of": "compute_bound"}, "compute-bound kernels take 1.1 times as long."),
        ({"of": "few", "name": "moe_gemm_*"}, "moe_gemm_* takes 1.1 times as long."),
        ({"factor": "size"}, "kernels have 1.1 times the blocks."),
        ({"factor": "size", "of": "few", "name": "gemm"}, "gemm has 1.1 times the blocks."),
        ({"factor": "size", "on_device": False}, "operators have 1.1 times the input."),
        ({"factor": "runs"}, "1.1 times as many kernels."),
        ({"factor": "runs", "of": "few", "name": "gemm"}, "gemm runs 1.1 times as often."),
        ({"factor": "runs", "of": "few", "name": "gemm", "usual": 0.0}, "compute."),
        ({"factor": "time"}, "compute."),
        ({"of": "launches"}, "each launch takes 1.1 times as long."),
        ({"of": "launches", "factor": "runs"}, "1.1 times as many launches."),
        ({"of": "few", "name": "a kernel of very many words that nobody reads"}, "compute."),
    ],
)
def test_the_headline_says_what_is_more(work: dict[str, Any], told: str) -> None:
    fields: dict[str, Any] = {"factor": "pace", "of": "all", "on_device": True, "own": 110.0, "usual": 100.0}
    assert takes(replace(ROW, work=LateWork(**(fields | work)))) == BEGIN + told


def test_a_host_stands_for_its_ranks() -> None:
    row = replace(ROW, ranks=[4, 5, 6, 7], host="node001")
    assert takes(row) == "Host node001 delays every step by 12.0 ms (9 %): compute."
    assert label(row) == "host node001 late"
    assert takes(replace(row, host="\x1b[31m")).startswith(r"Host \x1b[31m delays")
    late = [make_straggler(rank, category="compute", host="node001") for rank in row.ranks]
    assert stragglers_sentence(late, 20 * MS).startswith(
        "all 4 ranks of node001 are late per step, by 20.0 ms (compute)"
    )


def test_what_changes_ranks_says_so() -> None:
    row = LedgerRow(
        cause="host_work", ns=9 * MS, share=0.23, name="<built-in function collect>", on_changing_ranks=True
    )
    assert takes(row) == "Host work on changing ranks delays each step by 9.00 ms (23 %): garbage collection."
