"""What a rank whose conditions hold asks for, in the folder of a run whose ranks never answer."""

from collections.abc import Callable
from pathlib import Path

import pytest

from perfkit.options.conditions import CaptureRules
from perfkit.record.on_demand import requesting_rank
from perfkit.record.on_demand.mailbox import Mailbox, OpenMark, Request, Slot
from perfkit.record.on_demand.rank_capture import LightStep
from perfkit.record.on_demand.requester import ask, withdraw
from perfkit.record.on_demand.requesting_rank import RequestingRank
from tests.support.reports.histories import make_run_folder

MS = 1_000_000


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[Request]:
    """What has been asked for; the ranks have recorded it at once."""
    requests = []

    def agree(slot: Slot, _: object) -> None:
        request = slot.request()
        assert request is not None
        requests.append(request)
        slot.remove()

    monkeypatch.setattr(requesting_rank, "agree", agree)
    return requests


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    run = make_run_folder(tmp_path / "run", 10, state="running")
    Mailbox(run).open(OpenMark(host="", pid=0, poll_s=1.0))
    return run


def a_rank(folder: Path, *conditions: str) -> RequestingRank:
    return RequestingRank(folder, 2, CaptureRules.parse(conditions, 5, "2GiB"))


def take(rank: RequestingRank, steps: range, duration_ms: Callable[[int], float]) -> None:
    for step in steps:
        rank.step_ended(LightStep(step, 0, round(duration_ms(step) * MS), None))
        if rank._asking is not None:
            rank._asking.join()


def periods(asked: list[Request]) -> list[int]:
    return [request.period for request in asked if request.period is not None]


@pytest.mark.parametrize("period", [20, 30, 45, 49, 50, 60, 100, 250])
def test_a_stall_of_any_period_is_asked_for_once(period: int, folder: Path, asked: list[Request]) -> None:
    take(a_rank(folder, "step > 1.5x median"), range(2000), lambda step: 20 if step < 100 or step % period else 100)
    (periodic,) = [request for request in asked if request.period is not None]
    assert periodic.period == period
    assert ((periodic.first_step or 0) + 1) % period == 0


def test_a_stall_that_comes_due_during_another_capture_is_asked_for_later(folder: Path, asked: list[Request]) -> None:
    rank = a_rank(folder, "step > 1.5x median")
    take(rank, range(290), lambda step: 100 if step % 100 == 99 else 20)
    slot = ask(folder, Request(steps=3))
    take(rank, range(290, 450), lambda step: 100 if step % 100 == 99 else 20)
    withdraw(slot)
    assert periods(asked) == []
    take(rank, range(450, 1000), lambda step: 100 if step % 100 == 99 else 20)
    assert periods(asked) == [100]


def test_what_another_rank_asks_for_is_not_asked_for_again(folder: Path, asked: list[Request]) -> None:
    rank = a_rank(folder, "step > 1.5x median")
    take(rank, range(250), lambda step: 100 if step % 100 == 99 else 20)
    rank.note(Request(steps=3, condition="step > 1.5x median", first_step=298, period=100))
    take(rank, range(250, 1000), lambda step: 100 if step % 100 == 99 else 20)
    assert periods(asked) == []


def test_ranks_do_not_ask_soon_after_each_other(folder: Path, asked: list[Request]) -> None:
    rank = a_rank(folder, "step > 1.5x median")
    take(rank, range(110), lambda _: 20)
    rank.note(Request(steps=3, condition="loader wait > 30 %", at_step=100))
    take(rank, range(110, 300), lambda step: 100 if step in (115, 199, 212) else 20)
    assert [request.at_step for request in asked] == [212]


def test_what_a_person_asks_for_keeps_no_condition_quiet(folder: Path, asked: list[Request]) -> None:
    rank = a_rank(folder, "step > 1.5x median")
    take(rank, range(110), lambda _: 20)
    rank.note(Request(steps=3))
    take(rank, range(110, 120), lambda step: 100 if step == 115 else 20)
    assert [request.at_step for request in asked] == [115]


def test_ranks_that_ask_in_turn_ask_every_time(folder: Path, asked: list[Request]) -> None:
    ranks = [a_rank(folder, "every=100"), a_rank(folder, "every=100")]
    for step in range(450):
        for rank in ranks if step % 200 < 150 else reversed(ranks):
            take(rank, range(step, step + 1), lambda _: 20)
        if asked and asked[-1].at_step == step - 30:  # each rank looks for requests once a second
            for rank in ranks:
                rank.note(asked[-1])
    assert sorted({request.at_step or 0 for request in asked}) == [100, 200, 300, 400]
