"""Which rank the condition `rank late > 20 %` names, in logs whose truth is known."""

import threading
from pathlib import Path

import pytest

import perfkit
from perfkit.options.conditions import CaptureRules, parse_condition
from perfkit.record.on_demand.late_ranks import LateRanks, find_late_rank, last_plain_steps
from perfkit.record.on_demand.mailbox import Request
from perfkit.record.on_demand.rank_capture import LightStep
from perfkit.record.on_demand.requester import ask
from perfkit.record.on_demand.requesting_rank import RequestingRank
from perfkit.records.monitor import KIND_NUMBERS
from perfkit.storage.step_log.follow import RunFollower
from perfkit.subjects.monitor.table import align, rank_steps
from perfkit.tools.watch.view import view
from tests.support.monitor.made_runs import Floats, own_times, records, with_checks, write_log, write_run
from tests.support.processes.waiting import MOST_S, wait_for_threads

CONDITION = parse_condition("rank late > 20 %")


def watched(folder: Path) -> LateRanks:
    return LateRanks(RunFollower(folder, 256), CONDITION)


def append(folder: Path, own: Floats, begin: int) -> None:
    """Append the steps from `begin` on to the logs of all ranks."""
    for rank in range(len(own)):
        with (folder / f"rank{rank}.steps").open("ab") as stream:
            stream.write(with_checks(records(own, rank)[begin:]))


@pytest.mark.parametrize("ranks", [2, 3, 8])
def test_a_rank_that_becomes_slower_is_named_with_what_watch_shows(tmp_path: Path, ranks: int) -> None:
    own = own_times(ranks, 200)
    own[-1, 100:] *= 1.4
    firing = watched(write_run(tmp_path, own)).check()
    assert firing is not None
    assert firing.reason.startswith(f"rank {ranks - 1} was late by ")
    assert "steps 136 to 199" in firing.reason
    follower = RunFollower(tmp_path)
    follower.read()
    shown = max(rank.lag_ns for rank in view(follower, []).ranks)
    assert f"{shown / 1e6:.3g} ms" in firing.reason


@pytest.mark.parametrize("factor", [1.0, 1.15])
@pytest.mark.parametrize("ranks", [2, 8])
def test_ranks_that_are_late_by_less_are_not_named(tmp_path: Path, ranks: int, factor: float) -> None:
    own = own_times(ranks, 200)
    own[-1, 100:] *= factor
    assert watched(write_run(tmp_path, own)).check() is None


@pytest.mark.parametrize("ranks", [2, 8])
def test_what_varies_is_not_taken_for_lateness(ranks: int) -> None:
    own = own_times(ranks, 64 * 100, noise=0.4).clip(min=1e6)
    for begin in range(0, own.shape[1], 64):
        part = own[:, begin : begin + 64]
        table = align({rank: rank_steps(records(part, rank), "cpu") for rank in range(ranks)})
        assert table is not None
        recent = last_plain_steps(table)
        assert recent is not None
        assert find_late_rank(recent, 0.1) is None


def test_one_stretch_is_not_enough(tmp_path: Path) -> None:
    own = own_times(2, 200)
    own[1, 170:] *= 2
    assert watched(write_run(tmp_path, own)).check() is None


def test_steps_under_the_profiler_do_not_count(tmp_path: Path) -> None:
    own = own_times(2, 200)
    own[1, 110:] *= 3
    for rank in range(2):
        made = records(own, rank)
        made["kind"][110:] = KIND_NUMBERS["warmup"]
        write_log(tmp_path, rank, 2, made)
    assert watched(tmp_path).check() is None


def test_it_is_named_until_it_was_asked_for_and_again_after_it_was_on_time(tmp_path: Path) -> None:
    own = own_times(2, 600)
    own[1, 100:200] *= 2
    own[1, 400:] *= 2
    late = watched(write_run(tmp_path, own[:, :180]))
    assert late.check() is not None
    append(tmp_path, own[:, :190], 180)
    assert late.check() is not None
    late.asked()
    found = {}
    for end in range(200, 601, 20):
        append(tmp_path, own[:, :end], end - 20 if end > 200 else 190)
        found[end] = late.check() is not None
    assert min(end for end, fires in found.items() if fires) in range(440, 480)


def test_steps_of_a_capture_among_the_few_that_are_kept_do_not_let_it_be_named_again(tmp_path: Path) -> None:
    own = own_times(2, 400)
    own[1] *= 2
    made = [records(own, rank) for rank in range(2)]
    for rank in range(2):
        made[rank]["kind"][110:118] = KIND_NUMBERS["active"]
        write_log(tmp_path, rank, 2, made[rank][:100])
    late = LateRanks(RunFollower(tmp_path, 64), CONDITION)  # of a run of thousands of ranks
    assert late.check() is not None
    late.asked()
    for begin in range(100, 400, 20):
        for rank in range(2):
            with (tmp_path / f"rank{rank}.steps").open("ab") as stream:
                stream.write(with_checks(made[rank][begin : begin + 20]))
        assert late.check() is None


def test_what_could_not_be_asked_for_is_asked_for_later(tmp_path: Path) -> None:
    own = own_times(2, 200)
    own[1] *= 2
    (tmp_path / "logs").mkdir()
    late = watched(write_run(tmp_path / "logs", own[:, :180]))
    firing = late.check()
    assert firing is not None
    asked = threading.Event()
    requesting = RequestingRank(tmp_path / "run", 1, CaptureRules.parse(("rank late > 20 %",), 4, "1GiB"))

    def note_asked() -> None:
        late.asked()
        asked.set()

    def offer(step: int) -> None:
        requesting.step_ended(LightStep(step - 1, 0, 10**7, None))
        requesting.offer(firing._replace(asked=note_asked))
        requesting.step_ended(LightStep(step, 0, 10**7, None))

    with perfkit.monitor(tmp_path / "run", device="cpu") as mon:
        mon.step()
        by_hand = ask(mon.folder, Request(steps=3))
        offer(1)
        wait_for_threads("perfkit-asks")
        append(tmp_path / "logs", own[:, :190], 180)
        assert late.check() is not None
        by_hand.remove()
        offer(200)
        assert asked.wait(MOST_S)
        append(tmp_path / "logs", own, 190)
        assert late.check() is None


def test_without_known_waits_nobody_is_named(tmp_path: Path) -> None:
    own = own_times(2, 200)
    own[1] *= 2
    for rank in range(2):
        made = records(own, rank)
        made["collective_ns"] = -1
        write_log(tmp_path, rank, 2, made)
    assert watched(tmp_path).check() is None


def test_a_rank_that_logs_a_little_later_is_compared_in_the_steps_that_all_have(tmp_path: Path) -> None:
    own = own_times(2, 200)
    own[1, 100:] *= 1.5
    write_log(tmp_path, 0, 2, records(own, 0)[:199])
    write_log(tmp_path, 1, 2, records(own, 1)[:190])
    firing = watched(tmp_path).check()
    assert firing is not None
    assert "to 189" in firing.reason
