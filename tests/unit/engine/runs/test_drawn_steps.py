"""The collectives of drawn steps on all ranks: who was last, by how much, and what is not claimed."""

from pathlib import Path

import pytest

import perfkit
from perfkit.engine.runs import drawn_steps
from perfkit.records.per_run.communication import LinkedCollective
from perfkit.records.run import RunReport
from tests.support.traces.trace_builder import BASE_NS, TraceBuilder

US = 1000
APART_NS = 3_000_000_000
"""How far the clock of the second host is ahead."""


def run_of(folder: Path, ranks: int = 12, operator: str = "all_reduce", late: int = 5) -> RunReport:
    """Steps of 10 and 12 ms; each rank joins its collective 50 us after the one before, and `late` 2 ms after all."""
    for rank in range(ranks):
        host = rank // 8
        trace = TraceBuilder(
            rank=rank, world_size=ranks, backend="gloo", host_name=f"node{host}", base_ns=BASE_NS + host * APART_NS
        )
        for step in range(2):
            begin = step * 10_000
            joins = begin + 5000 + (2600 if rank == late else 50 * rank)
            trace.step(step, begin, 9990 + 2000 * step).op("aten::mm", begin + 100, joins - begin - 200)
            trace.op(f"c10d::{operator}_", joins - 20, 10).gloo(operator, joins, begin + 8000 - joins)
        trace.write(folder / f"rank{rank}.json")
    (run,) = perfkit.analyze(folder).runs
    return run


def waits(one: LinkedCollective) -> dict[int, int | None]:
    return {own.rank: None if own.wait_ns is None else own.wait_ns // US for own in one.on_ranks}


def test_the_last_rank_and_how_long_the_others_waited(tmp_path: Path) -> None:
    found = run_of(tmp_path).linked_collectives
    assert [(one.step, one.operator, one.ranks, one.last) for one in found] == [
        (0, "all_reduce", 12, 5),
        (1, "all_reduce", 12, 5),
    ]
    # The straggler and the rank that is drawn beside it, and of the others those that wait longest.
    waiting = waits(found[0])
    assert len(waiting) == drawn_steps.MOST_RANKS
    assert {rank: waiting[rank] for rank in range(5)} == {rank: 2600 - 50 * rank for rank in range(5)}
    assert waiting[5] == 0


def test_begins_are_by_one_clock(tmp_path: Path) -> None:
    one = run_of(tmp_path, late=10).linked_collectives[0]
    assert one.last == 10
    by_rank = {own.rank: own for own in one.on_ranks}
    far, near = by_rank[10], by_rank[0]
    assert far.start_ns - near.start_ns == APART_NS + 2600 * US
    assert far.begin_ns is not None
    assert near.begin_ns is not None
    assert far.begin_ns - near.begin_ns == pytest.approx(2600 * US, abs=US)


def test_a_broadcast_does_not_tell_who_was_last(tmp_path: Path) -> None:
    one = run_of(tmp_path, 3, "broadcast", late=1).linked_collectives[0]
    assert (one.operator, one.ranks, one.last) == ("broadcast", 3, None)
    assert set(waits(one).values()) == {None}


def test_the_longest_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drawn_steps, "MOST_PER_STEP", 2)
    for rank in range(2):
        trace = TraceBuilder(rank=rank, world_size=2, backend="gloo").step(0, 0, 10_000)
        for place, length in enumerate((100, 400, 200, 300)):
            trace.gloo("all_reduce", 1000 * place + 500, length)
        trace.write(tmp_path / f"rank{rank}.json")
    (run,) = perfkit.analyze(tmp_path).runs
    assert [one.on_ranks[0].duration_ns // US for one in run.linked_collectives] == [400, 300]
    assert [one.last for one in run.linked_collectives] == [None, None]


def test_a_single_rank_has_none(tmp_path: Path) -> None:
    assert run_of(tmp_path, 1).linked_collectives == []
