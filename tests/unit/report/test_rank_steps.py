"""Every step of every rank, as the page has them."""

import pytest
from msgspec.structs import replace

from perfkit.records.common import Finding
from perfkit.records.cross_rank import CrossRankSummary, Straggler
from perfkit.records.per_run.communication import LinkedCollective
from perfkit.report.renderers import explorer as module
from perfkit.report.renderers.explorer import MOST_RANKS, _collective, explorer, rank_steps
from tests.support.reports.report_builders import MS, make_rank, make_run, make_step


def test_times_are_those_of_the_steps() -> None:
    ranks = [make_rank(0, [make_step(5), make_step(6)]), make_rank(1, [make_step(6, compute=90 * MS)])]
    found = rank_steps(make_run(ranks=ranks))
    assert found is not None
    assert (found.steps, [label for label, _ in found.ranks], found.note) == (["5", "6"], ["0", "1"], "")
    in_ms = [
        [None if step is None else [ns * found.unit_ns // MS for ns in step] for step in rank] for rank in found.times
    ]
    assert in_ms == [[[60, 20, 0, 15, 5], [60, 20, 0, 15, 5]], [None, [90, 20, 0, 15, 5]]]


@pytest.mark.parametrize(
    ("ns", "unit_ns"), [(900, 1), (99_000, 1), (123_456, 10), (46 * MS, 1_000), (5_000 * MS, 100_000)]
)
def test_times_have_five_digits(ns: int, unit_ns: int) -> None:
    step = make_step(1, compute=ns, communication=0, data_loading=0, overhead=0)
    found = rank_steps(make_run(ranks=[make_rank(0, [step])]))
    assert found is not None
    assert found.unit_ns == unit_ns
    assert found.times[0][0] == [round(ns / unit_ns), 0, 0, 0, 0]


def test_of_too_many_ranks_the_stragglers_and_the_slowest_are_kept() -> None:
    count = MOST_RANKS + 3
    ranks = [make_rank(number, [make_step(5, compute=(60 + (number == 1026)) * MS)]) for number in range(count)]
    late = Straggler(rank=1025, category="compute", lag_ns=1, share=0, gain_ns=0, steps_late=1, steps_last=1, steps=1)
    summary = CrossRankSummary(collectives=[], rank_waits=[], matched=0, unmatched=0, stragglers=[late])
    found = rank_steps(make_run(ranks=ranks, cross_rank=summary))
    assert found is not None
    labels = [label for label, _ in found.ranks]
    assert len(labels) == MOST_RANKS
    assert labels[-2:] == ["1025", "1026"]
    assert found.stragglers == {"1025": "takes longer than the others, in compute"}
    assert found.note == "Shown are the 1,024 of 1,027 ranks that are stragglers or take longest without communication."


def test_of_too_many_steps_the_longest_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_CELLS", 40)
    steps = [make_step(number, compute=(60 + (number in (3, 30))) * MS) for number in range(50)]
    found = rank_steps(make_run(ranks=[make_rank(0, steps), make_rank(1, steps)]))
    assert found is not None
    assert len(found.steps) == 20
    assert {"3", "30"} <= set(found.steps)
    assert found.note == "Shown are the 20 longest of 50 steps."


def test_ranks_without_a_number_are_told_apart() -> None:
    ranks = [replace(make_rank(0, [make_step(5)]), rank=None, traces=[name]) for name in ("a.json", "b<.json")]
    run = make_run(ranks=ranks)
    found, shown = rank_steps(run), explorer(run)
    assert found is not None
    assert shown is not None
    assert [label for label, _ in found.ranks] == ["– a.json", "– b<.json"]
    assert [name for _, name in shown.traces] == ["a.json", "b<.json"]
    assert [path.rsplit("/", 1)[-1].strip("'") for path, _ in shown.traces] == ["a.json", "b<.json"]


def test_no_trace_is_named_for_a_rank_with_several() -> None:
    shown = explorer(make_run(ranks=[replace(make_rank(0, [make_step(5)]), traces=["a.json", "b.json"])]))
    assert shown is not None
    assert list(shown.traces) == [("", "")]


def test_nothing_without_steps() -> None:
    assert rank_steps(make_run(ranks=[])) is None


@pytest.mark.parametrize(
    ("group_size", "unknown", "partial"), [(None, False, False), (None, True, True), (2, True, False)]
)
def test_the_last_rank_is_the_last_of_those_with_traces(group_size: int | None, unknown: bool, partial: bool) -> None:
    finding = Finding(code="world_size_unknown", severity="info", message="")
    ranks = [make_rank(number, [make_step(5)]) for number in range(2)]
    run = make_run(ranks=ranks, world_size=2, findings=[finding] if unknown else [])
    one = LinkedCollective(step=5, operator="all_reduce", group_size=group_size, ranks=2, last=1, on_ranks=[])
    assert _collective(run, one, 0)["partial"] is partial
