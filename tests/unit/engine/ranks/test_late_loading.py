"""A rank that is late in data loading: what for, if its batches tell."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from perfkit.pipeline import analyze as pipeline
from perfkit.pipeline.words import find_insights
from perfkit.records.cross_rank import LateLoading, Straggler
from perfkit.records.per_rank.loading import SlowSample
from perfkit.records.run import RunReport
from perfkit.report.wording.stragglers import load_clause
from tests.support.traces.trace_builder import BASE_NS, TraceBuilder

STEP = 100_000
"""Microseconds."""
NEXT = "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"
FAST = (1_500, 100)


def times(kind: str, step: int) -> tuple[int, int]:
    """How long getting the samples of a step's batch and collating it take."""
    if kind == "worker":
        return (50_000, 100) if step % 2 else FAST
    return {"collate": (1_000, 50_000), "reading": (50_000, 100)}.get(kind, FAST)


def analyse(folder: Path, kinds: Sequence[str], *, recorded: bool = True) -> RunReport:
    """Twelve steps of ranks with two workers each; a rank `late` is so before it asks for its batch."""
    for rank, kind in enumerate(kinds):
        builder = TraceBuilder(rank, len(kinds), backend="gloo")
        fetches = []
        for step in range(12):
            at, (get, collate) = step * STEP + rank * 7, times(kind, step)
            waits = get + collate + 400
            fetches.append([step % 2, BASE_NS + (at + 200) * 1000, get * 1000, 0, collate * 1000, 8, 5, get * 125])
            builder.step(step, at, STEP).data_loading(at, waits, name=NEXT)
            if kind == "late":
                builder.data_loading(at + waits, 40_000, name="perfkit.data_loading")
                waits += 40_000
            # Ranks that all are slow do not wait for each other.
            work = 30_000 if set(kinds) - {"worker"} else STEP - waits - 1_000
            builder.op("aten::mm", at + waits, work)
            builder.gloo("all_reduce", at + waits + work, STEP - waits - work)
        builder.header(perfkit={"rank": rank, "world_size": len(kinds), "fetches": fetches if recorded else None})
        builder.write(folder / f"rank{rank}.json")
    (run,) = pipeline.analyze(folder, cache=False).runs
    return run


def late(run: RunReport) -> list[Straggler]:
    assert run.cross_rank is not None
    return run.cross_rank.stragglers


@pytest.mark.parametrize(
    ("kind", "cause", "words", "advice"),
    [
        ("worker", "slow_worker", "waiting for its worker 1, whose batches take 50.1 ms, against 1.60 ms", ""),
        ("collate", "collating", "data loading: collating batches)", "collate less"),
        ("reading", "reading", "data loading: waiting for storage or a free core)", "read whole batches"),
    ],
)
def test_a_straggler_in_data_loading_is_named_with_what_it_waits_for(
    tmp_path: Path, kind: str, cause: str, words: str, advice: str
) -> None:
    run = analyse(tmp_path, ["fast", "fast", kind, "fast"])
    (row,) = late(run)
    assert row.loading is not None
    assert (row.rank, row.category, row.loading.cause) == (2, "data_loading", cause)
    (message,) = [finding.message for finding in run.findings if finding.code == "straggler"]
    assert words in message
    assert "such a worker" not in message
    assert any(advice in str(insight) for insight in find_insights([run], None).insights)


def test_of_ranks_that_all_have_a_slow_worker_none_is_late(tmp_path: Path) -> None:
    run = analyse(tmp_path, ["worker", "worker"])
    assert late(run) == []
    assert run.verdict.bound == "input"


def test_what_batches_do_not_tell_is_not_named(tmp_path: Path) -> None:
    (row,) = late(analyse(tmp_path, ["fast", "fast", "late"]))
    assert (row.rank, row.category, row.loading) == (2, "data_loading", None)


def test_without_recorded_batches_the_category_stands_alone(tmp_path: Path) -> None:
    run = analyse(tmp_path, ["fast", "reading", "fast"], recorded=False)
    (row,) = late(run)
    assert (row.category, row.loading) == ("data_loading", None)
    assert run.ledger is not None
    booked = run.ledger.of("late_ranks")
    assert booked is not None
    assert (booked.ranks, booked.late_in) == ([1], "data_loading")


@pytest.mark.parametrize(
    ("sample", "others", "words"),
    [
        (SlowSample(index=7, worker=0, ns=80_000_000), 2, "waiting for sample 7, which took 80.0 ms and 2 more"),
        (SlowSample(index=7, worker=0, ns=80_000_000), 0, "waiting for sample 7, which took 80.0 ms"),
        (None, 0, "waiting for single slow samples"),
    ],
)
def test_slow_samples_are_named(sample: SlowSample | None, others: int, words: str) -> None:
    assert load_clause(LateLoading(cause="slow_sample", sample=sample, more_samples=others)) == words


def test_several_are_named_shortly(tmp_path: Path) -> None:
    run = analyse(tmp_path, ["fast", "reading", "fast", "collate", "fast"])
    assert {row.rank: row.loading and row.loading.cause for row in late(run)} == {1: "reading", 3: "collating"}
    (message,) = [finding.message for finding in run.findings if finding.code == "straggler"]
    assert "data loading: waiting for storage or a free core)" in message
    assert "data loading: collating batches)" in message
