"""The verdict: the row of the ledger that matters first, as a headline of few words."""

from typing import Any, Final

import pytest
from msgspec.structs import replace

from perfkit.engine.ledger.verdict import judge
from perfkit.engine.runs.pauses import PauseCost
from perfkit.pipeline.words import verdict as worded
from perfkit.records.common import Finding
from perfkit.records.per_rank.idle import CAUSES
from perfkit.records.per_run.ledger import Ledger, LedgerRow
from perfkit.records.per_run.pauses import RankPauses
from perfkit.report.content.ledger import parts
from perfkit.tables.labels import COLOURS, FILLS

MS = 1_000_000
FRAME = "/home/me/train.py(32): colour_jitter"


def made(share: float, cause: Any, **changes: Any) -> LedgerRow:
    return LedgerRow(cause=cause, ns=round(share * 100 * MS), share=share, **changes)


def ledger(*rows: LedgerRow) -> Ledger:
    rest = 1 - sum(row.share for row in rows)
    every = [*rows, *([made(rest, "compute")] if rest > 1e-9 else [])]
    ordered = sorted(every, key=lambda row: -row.ns)
    return Ledger(step_ns=100 * MS, is_profiled=False, from_path=True, rows=ordered)


CASES: Final[list[tuple[list[LedgerRow], str]]] = [
    ([], "compute"),
    ([made(0.09, "communication")], "compute"),
    ([made(0.09, "communication"), made(0.09, "memcpy"), made(0.08, "unknown")], "none"),
    ([made(0.27, "communication", name="all_reduce")], "communication"),
    ([made(0.27, "communication")], "communication"),
    ([made(0.68, "data_loading", name=FRAME)], "input"),
    ([made(0.68, "data_loading", name="enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__")], "input"),
    ([made(0.3, "memcpy", name="Memcpy DtoH (Device -> Pageable)")], "memcpy"),
    ([made(0.4, "host_work", name=FRAME)], "host"),
    ([made(0.4, "host_work", name="perfkit.forward")], "host"),
    ([made(0.4, "launch_bound", name="aten::mm")], "host"),
    ([made(0.4, "synchronisation", name="aten::item")], "host"),
    ([made(0.4, "not_running", name="threading.py(355): wait")], "host"),
    ([made(0.4, "compilation", name="Torch-Compiled Region: 0/0")], "host"),
    ([made(0.4, "allocation", name="cudaMalloc")], "host"),
    ([made(0.4, "dependency")], "host"),
    ([made(0.4, "unknown", name="nothing recorded on the host")], "host"),
    ([made(0.4, "profiler")], "host"),
    ([made(0.4, "bubble")], "bubble"),
    ([made(0.47, "late_ranks", ranks=[1], late_in="host_work", phase="forward", name=FRAME)], "imbalance"),
    ([made(0.47, "late_ranks", ranks=[1], late_in="data_loading")], "imbalance"),
    ([made(0.05, "late_ranks", ranks=[1], late_in="compute", name="aten::mm")], "imbalance"),
    ([made(0.47, "late_ranks", ranks=[1, 3, 4, 5], late_in="compute")], "imbalance"),
    ([made(0.47, "late_ranks", ranks=[1], late="at_times", late_in="unknown", phase="forward")], "imbalance"),
    ([made(0.47, "late_ranks", ranks=[0, 1], late="in_turns", late_in="host_work")], "imbalance"),
    ([made(0.04, "late_ranks", ranks=[1], late_in="compute")], "compute"),
]


@pytest.mark.parametrize(("rows", "bound"), CASES)
def test_the_largest_loss_counts_if_it_is_large(rows: list[LedgerRow], bound: str) -> None:
    assert judge(ledger(*rows), None, [], 1).bound == bound


SAVES: Final = RankPauses(phase="checkpoint", rank=0, count=6, total_ns=0, max_ns=0, steps=24, caller="train.py:9 save")


@pytest.mark.parametrize(
    ("each_ms", "rows", "bound"),
    [
        (660, [], "pauses"),
        (660, [made(0.4, "host_work")], "pauses"),
        (120, [made(0.4, "host_work")], "host"),
        (40, [], "compute"),
    ],
)
def test_pauses_that_take_more_than_any_loss_come_first(each_ms: int, rows: list[LedgerRow], bound: str) -> None:
    """Six checkpoints in 24 steps of 100 ms."""
    total_ns = 6 * each_ms * MS
    row = replace(SAVES, total_ns=total_ns)
    pauses = PauseCost(row, 6, 24, total_ns, total_ns / (total_ns + 2400 * MS))
    judged = judge(ledger(*rows), pauses, [], 1)
    assert judged.bound == bound
    if bound == "pauses":
        assert worded(judged).sentence == "Checkpoints take 62 % of the time, besides the steps: train.py:9 save."


@pytest.mark.parametrize("code", ["no_device_events", "duplicate_rank"])
def test_traces_that_do_not_tell_have_no_verdict(code: str) -> None:
    finding = Finding(code=code, severity="warning", message="")
    found = worded(judge(ledger(), None, [finding], 1))
    assert (found.bound, found.share) == ("unknown", 0.0)
    assert found.sentence.startswith("no verdict: ")


@pytest.mark.parametrize(("known", "traces"), [(None, 1), (ledger(), 0)])
def test_without_steps_or_traces_there_is_none(known: Ledger | None, traces: int) -> None:
    assert judge(known, None, [], traces).bound == "unknown"


def test_every_row_can_be_drawn() -> None:
    causes = ["compute", "late_ranks", "bubble", "communication", "memcpy", "data_loading", "unrecorded", *CAUSES]
    rows = [made(1 / len(causes), cause, ranks=[1] if cause == "late_ranks" else []) for cause in causes]
    for row in rows:
        (part,) = parts(ledger(*[replace(row, share=1.0, ns=100 * MS)]))
        assert FILLS[part.kind]
        assert COLOURS[part.cause]
        assert part.label
