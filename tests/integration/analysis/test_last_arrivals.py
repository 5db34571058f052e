"""Ranks that join collectives last in a run of few steps: named where they always do, and not elsewhere."""

from pathlib import Path

import pytest

from perfkit.pipeline.analyze import analyze
from perfkit.records.cross_rank import LastArrivals
from perfkit.records.report import Insight
from tests.support.traces.device_training import Device, Part, train

pytestmark = pytest.mark.usefixtures("shared_cache")

MS = 1_000_000
RANKS = 4


def finish(one: Device, _step: int) -> None:
    one.item()


def compute_longer(one: Device, _step: int) -> None:
    one.kernels("gemm", 3000 if one.rank == 1 else 1000)


def save_after(name: str, us: int) -> Part:
    """Return what all ranks annotate, which takes so long on rank 1."""

    def part(one: Device, _step: int) -> None:
        length = us if one.rank == 1 else 10
        one.trace.annotation(name, one.now, length)
        one.work(length, "train.py(20): save")

    return part


def slow(*ranks: int, us: int = 2000) -> Part:
    """Return a part of 1 ms of computation, after so much work of the host on some ranks."""

    def part(one: Device, _step: int) -> None:
        if one.rank in ranks:
            one.work(us, "train.py(10): augment")
        one.kernels("gemm", 500, 2)

    return part


def found(
    folder: Path, steps: int, parts: list[Part | int], begins: dict[int, int] | None = None
) -> tuple[LastArrivals | None, Insight | None]:
    report = analyze([train(folder, RANKS, steps, parts, begins=begins)])
    across = report.runs[0].cross_rank
    assert across is not None
    return across.last_arrivals, next((one for one in report.insights if one.rule == "waiting"), None)


def after_start(*late: Part) -> list[Part | int]:
    """Return a step in which the hosts wait for the device after each all-reduce."""
    return [slow(), 300, finish, *(part for one in late for part in (one, 300, finish))]


@pytest.mark.parametrize("steps", [1, 2])
def test_the_ranks_that_are_last_are_named_with_what_they_do_longer(tmp_path: Path, steps: int) -> None:
    last, one = found(tmp_path, steps, after_start(slow(1, 2), slow(), slow(1, 2)))
    assert last is not None
    assert (last.ranks, last.operators, last.late) == ([1, 2], ["all_reduce"], 2 * steps)
    assert last.lag_ns == pytest.approx(2 * MS, rel=0.01)
    assert last.category == "overhead"
    assert last.exposed_wait_ns == pytest.approx(2 * 2 * 2 * MS * steps, rel=0.01)
    assert one is not None
    assert "for ranks 1 and 2, last at " in one.sentence
    assert one.sentence.endswith(" collectives")
    assert one.recommendation.startswith("check launches, Python and synchronisation on ranks 1 and 2")
    assert one.recommendation.endswith(f"{'one does' if steps == 1 else '2 do'} not tell whether they always are late")


def test_ranks_that_only_started_recording_later_are_not_blamed(tmp_path: Path) -> None:
    prompt = [*(part for _ in range(5) for part in (slow(), 300)), finish]
    last, one = found(tmp_path, 1, prompt, begins={1: 20_000})
    assert last is None
    assert one is None


def test_waiting_after_the_start_is_told_from_the_skew_of_the_start(tmp_path: Path) -> None:
    last, one = found(tmp_path, 1, [slow(3, us=20_000), 300, finish, *after_start(slow(1), slow(1), slow(), slow())])
    assert last is not None
    assert last.ranks == [1]
    assert last.start_wait_ns == pytest.approx(3 * 20 * MS, rel=0.01)
    assert one is not None
    assert one.sentence.startswith("Ranks wait for rank 1")
    assert one.potential_saving_ns == pytest.approx(2 * 2 * MS, rel=0.01)


@pytest.mark.parametrize("late", [(0, 1, 2, 3), (0, 1), (0,)])
def test_no_rank_is_named_if_they_take_turns_or_one_is_late_once(tmp_path: Path, late: tuple[int, ...]) -> None:
    last, one = found(tmp_path, 1, after_start(*(slow(rank) for rank in late), slow()))
    assert last is None
    assert one is None or "too few steps to tell which of them are late" in one.sentence


def test_most_ranks_are_not_late(tmp_path: Path) -> None:
    last, _ = found(tmp_path, 1, after_start(slow(0, 1, 2), slow(0, 1, 2), slow(0, 1, 2)))
    assert last is None


def test_with_enough_steps_the_stragglers_tell(tmp_path: Path) -> None:
    last, one = found(tmp_path, 4, after_start(slow(1), slow(1)))
    assert last is None
    assert one is not None
    assert one.sentence == "Rank 1 late"


def test_what_takes_longer_after_the_last_collective_is_not_why_ranks_wait(tmp_path: Path) -> None:
    parts = [slow(), 300, finish, *after_start(compute_longer, compute_longer)[3:], save_after("save", 50_000)]
    last, one = found(tmp_path, 1, parts)
    assert last is not None
    assert (last.ranks, last.category, last.annotation) == ([1], None, None)
    assert one is not None
    assert one.sentence.endswith("for rank 1, last at all 2 collectives")
    assert one.recommendation.startswith("find what rank 1 does longer;")


def test_an_annotation_on_the_host_is_not_where_a_device_computes(tmp_path: Path) -> None:
    parts = [*after_start(*[compute_longer] * 4), save_after("save", 1500)]
    last, _ = found(tmp_path, 1, parts)
    assert last is not None
    assert (last.category, last.annotation) == ("compute", None)


def test_an_annotation_is_named_by_all_that_a_step_loses_in_it(tmp_path: Path) -> None:
    parts = after_start(*[save_after("augment", 2000)] * 4)
    last, one = found(tmp_path, 1, parts)
    assert last is not None
    assert (last.category, last.annotation) == ("overhead", "augment")
    assert one is not None


def test_each_trace_of_a_rank_has_a_start(tmp_path: Path) -> None:
    parts: list[Part | int] = [slow(0, us=20_000), 300, finish, slow(0, us=20_000), 300, finish, slow(), 300, finish]
    for cycle in range(2):
        for path in sorted(train(tmp_path / "cycle", RANKS, 1, parts, first_step=3 + 10 * cycle).iterdir()):
            path.rename(tmp_path / f"{path.stem}_cycle{cycle}.json")
    (tmp_path / "cycle").rmdir()
    run = analyze([tmp_path]).runs[0]
    assert [len(rank.traces) for rank in run.ranks] == [2] * RANKS
    assert run.cross_rank is not None
    assert run.cross_rank.last_arrivals is None


def test_only_ranks_with_traces_are_compared(tmp_path: Path) -> None:
    report = analyze([train(tmp_path, RANKS, 1, after_start(*[slow(1)] * 3, slow()), left_out=[3])])
    one = next(one for one in report.insights if one.rule == "waiting")
    assert "for rank 1, last at " in one.sentence
