"""Ranks that join collectives last in a run of few steps: named where they always do, and not elsewhere."""

from pathlib import Path

import pytest

from perfkit.pipeline.analyze import analyze
from perfkit.schema.cross_rank import LastArrivals
from perfkit.schema.report import Insight
from tests.support.traces.device_training import Device, Part, train

pytestmark = pytest.mark.usefixtures("shared_cache")

MS = 1_000_000
RANKS = 4


def finish(one: Device, _step: int) -> None:
    one.item()


def slow(*ranks: int, us: int = 2000) -> Part:
    """Return a part of 1 ms of computation, after so much work of the host on some ranks."""

    def part(one: Device, _step: int) -> None:
        if one.rank in ranks:
            one.work(us, "train.py(10): augment")
        one.kernels("gemm", 500, 2)

    return part


def found(folder: Path, steps: int, parts: list[Part | int]) -> tuple[LastArrivals | None, Insight | None]:
    report = analyze([train(folder, RANKS, steps, parts)])
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
    assert one.sentence.endswith("collectives (all_reduce) by up to 2.00 ms, after more time idle")
    assert one.recommendation.startswith("check launches, Python and synchronisation on ranks 1 and 2")
    assert one.recommendation.endswith(f"{'one does' if steps == 1 else '2 do'} not tell whether they always are late")


def test_ranks_that_only_started_recording_later_are_not_blamed(tmp_path: Path) -> None:
    late_start = [slow(1, us=20_000), 300, *(part for _ in range(4) for part in (slow(), 300)), finish]
    last, one = found(tmp_path, 1, late_start)
    assert last is None
    assert one is None


def test_waiting_after_the_start_is_told_from_the_skew_of_the_start(tmp_path: Path) -> None:
    last, one = found(tmp_path, 1, [slow(3, us=20_000), 300, finish, *after_start(slow(1), slow(1), slow(), slow())])
    assert last is not None
    assert last.ranks == [1]
    assert last.start_wait_ns == pytest.approx(3 * 20 * MS, rel=0.01)
    assert one is not None
    assert "15.0 ms while ranks may have been late because they started recording later" in one.sentence
    assert one.potential_saving_ns == pytest.approx(2 * MS, rel=0.01)


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
    assert "rank 1, which spends 4.00 ms more per step idle" in one.sentence
