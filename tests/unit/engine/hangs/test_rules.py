"""The rules of the diagnosis, on jobs whose fault is known."""

import pytest
from msgspec.structs import replace

from perfkit.engine.hangs.calls import Wait
from perfkit.engine.hangs.rules import DUE_TO_ANOTHER_RANK
from perfkit.record.process_stat import SILENT
from perfkit.records.hang import Diagnosis, Frame, IssuedCollective, RankState, WorkerStack
from tests.support.hangs.rank_states import call, diagnose, frame, state

LOAD = [frame("data.py", 88, "load_batch"), frame("train.py", 9, "train")]
LOADER = "/venv/lib/python3.12/site-packages/torch/utils/data/dataloader.py"
BOTH = {"dp": [0, 1], "tp": [0, 1]}


def three_and(odd: RankState | None, *, last: IssuedCollective | None = None) -> Diagnosis:
    """Return the diagnosis of three ranks that wait in all_reduce #812, and rank 3."""
    waiting = [state(rank, call(811, done=True), last or call(812, elements=6_250_000)) for rank in range(3)]
    return diagnose("job", [*waiting, odd] if odd else waiting)


def test_a_rank_that_has_not_issued_what_the_others_wait_for() -> None:
    found = three_and(state(3, call(811, done=True), main=LOAD))
    assert (found.verdict, found.headline) == (
        "fault",
        "ranks 0-2 wait in all_reduce #812 of group dp (25.0 MB, float32) at train.py:10; rank 3 has not issued it: "
        "it is in `load_batch` at data.py:88",
    )
    (fault,) = found.faults
    assert (fault.kind, fault.group, fault.seq, fault.op) == ("not_issued", "group dp", 812, "all_reduce")
    assert (fault.ranks, fault.waiting) == ([3], [0, 1, 2])
    assert found.ranks[3].frame == LOAD[0]


def test_another_collective_another_size_another_type() -> None:
    broadcast = three_and(state(3, call(811, done=True), call(812, "broadcast", elements=7, line=16)))
    assert (broadcast.faults[0].kind, broadcast.faults[0].ranks) == ("operator", [3])
    assert broadcast.headline == (
        "ranks 0-2 issued all_reduce #812 of group dp (25.0 MB, float32) at train.py:10; rank 3 issued broadcast #812 "
        "(28 B, float32) at train.py:16 instead: mismatched collectives"
    )
    size = three_and(state(3, call(811, done=True), call(812, elements=7)))
    assert (size.faults[0].kind, size.faults[0].ranks) == ("size", [3])
    dtype = three_and(state(3, call(811, done=True), call(812, elements=6_250_000, dtype="float64")))
    assert (dtype.faults[0].kind, dtype.faults[0].ranks) == ("dtype", [3])


def test_sizes_may_differ_where_the_collective_allows_it() -> None:
    ranks = [state(rank, call(1, "all_to_all", elements=rank + 1)) for rank in range(4)]
    assert diagnose("job", ranks).verdict == "agree"


def test_without_a_collective_to_compare_nothing_is_known_to_agree() -> None:
    nothing = [replace(state(rank), collectives=None) for rank in range(4)]
    assert diagnose("job", nothing).verdict == "unknown"
    assert diagnose("job", [state(rank) for rank in range(4)]).verdict == "unknown"
    own_groups = [state(rank, call(1, group=f"g{rank}"), groups={f"g{rank}": [rank]}) for rank in range(4)]
    assert diagnose("job", own_groups).verdict == "unknown"


def test_a_rank_inside_a_send_or_receive_leaves_it_open() -> None:
    done = [state(rank, call(1, done=True)) for rank in range(4)]
    assert diagnose("job", [*done[:3], replace(done[3], in_message=True)]).verdict == "unknown"


def test_ranks_that_agree() -> None:
    done = [state(rank, call(1, done=True), call(2, done=True)) for rank in range(4)]
    assert (diagnose("job", done).verdict, diagnose("job", done).faults) == ("agree", [])
    in_flight = [state(rank, call(1, done=True), call(2)) for rank in range(4)]
    assert diagnose("job", in_flight).verdict == "agree"
    ahead = [state(rank, call(1, done=True), *([call(2, done=True)] if rank else [])) for rank in range(4)]
    assert diagnose("job", ahead).verdict == "agree", "a rank that has gone on keeps nobody waiting"


def test_a_ring_buffer_that_has_lost_the_oldest_entries_is_no_fault() -> None:
    whole = state(0, *(call(seq, done=True) for seq in range(1, 9)), world_size=2)
    short = state(1, *(call(seq, done=True) for seq in range(5, 9)), world_size=2)
    assert diagnose("job", [whole, short]).verdict == "agree"


def test_a_rank_that_left_nothing_is_not_said_to_have_left_a_collective_out() -> None:
    found = three_and(None)
    assert found.headline.endswith("; rank 3 left no file")
    assert found.unread == ["rank 3 left no file"]


def test_a_dump_that_is_missing_leaves_it_open_whether_all_agree() -> None:
    left = [replace(state(rank, call(1, done=True)), world_size=None) for rank in range(3)]
    members = replace(left[0].groups[0], ranks=[0, 1, 2, 3])
    found = diagnose("job", [replace(one, groups=[members]) for one in left])
    assert (found.verdict, found.world_size, found.unread) == ("unknown", 4, ["rank 3 left no file"])
    only_two = replace(members, ranks=[1, 2])  # of a larger job: who else there is, nobody knows
    assert diagnose("job", [replace(one, groups=[only_two]) for one in left[1:]]).verdict == "agree"


def test_a_wait_in_a_group_of_unknown_members_leaves_it_open() -> None:
    """As in gloo's dumps of two groups of the same ranks, used in opposite order."""

    def dumped(rank: int, *calls: IssuedCollective) -> RankState:
        return replace(state(rank, call(1, group="all", done=True), *calls, groups={}), world_size=None)

    one, other = call(1, group="1"), call(1, group="2")
    opposite = [dumped(0, one), dumped(1, other), dumped(2, one)]
    assert diagnose("job", opposite).verdict == "unknown"
    together = [dumped(rank, one) for rank in range(3)]
    assert diagnose("job", together).verdict == "agree"
    ended = [dumped(0, replace(one, done=True)), dumped(1), dumped(2, replace(one, done=True))]
    assert diagnose("job", ended).verdict == "agree"


def test_of_several_ranks_it_is_said_in_the_plural() -> None:
    ahead = state(0, call(1, "broadcast", done=True), call(2))
    behind = [state(rank, call(1, "broadcast")) for rank in (1, 2, 3)]
    assert "; ranks 1-3 have not issued it: they issued broadcast #1 " in diagnose("job", [ahead, *behind]).headline
    loading = [state(rank, call(1, "broadcast", done=True), main=LOAD) for rank in (1, 2, 3)]
    found = diagnose("job", [ahead, *loading])
    assert found.headline.endswith("; ranks 1-3 have not issued it: they are in `load_batch` at data.py:88")
    waiting = [state(rank, call(2)) for rank in (0, 1)]
    found = diagnose("job", waiting, absent={2: "is stopped", 3: "is stopped"})
    assert found.headline.endswith("; ranks 2-3 are stopped")
    found = diagnose("job", waiting, absent={2: "was killed", 3: "was killed"})
    assert found.headline.endswith("; ranks 2-3 were killed")
    found = diagnose("job", waiting, absent={2: SILENT, 3: SILENT})
    assert "ranks 2-3 run, but did not write what they do " in found.headline
    assert found.headline.endswith("so that it is not known what they have issued")
    found = diagnose("job", waiting, absent={2: DUE_TO_ANOTHER_RANK, 3: DUE_TO_ANOTHER_RANK})
    assert "ranks 2-3 ended because another rank was gone or late" in found.headline


def test_a_rank_that_is_gone() -> None:
    waiting = [state(rank, call(1)) for rank in range(3)]
    found = diagnose("job", waiting, absent={3: "was stopped (SIGSTOP)"})
    assert found.headline.endswith("at train.py:10; rank 3 was stopped (SIGSTOP)")
    idle = [state(rank, call(1, done=True)) for rank in range(3)]
    found = diagnose("job", idle, absent={3: "was killed"})
    assert (found.faults[0].kind, found.headline) == ("gone", "rank 3 was killed")


def test_two_groups_in_opposite_order() -> None:
    found = diagnose(
        "job",
        [
            state(0, call(7, group="dp", line=20), groups=BOTH, world_size=2),
            state(1, call(4, group="tp", line=30), groups=BOTH, world_size=2),
        ],
    )
    (fault,) = found.faults
    assert fault.kind == "deadlock"
    assert "rank 0 waits in all_reduce #7 of group dp" in fault.message
    assert "rank 1 waits in all_reduce #4 of group tp" in fault.message
    assert "different order" in fault.message


def test_a_rank_that_works_beside_its_own_collective_is_not_said_to_wait_in_it() -> None:
    ranks = [
        state(0, call(7, group="dp", line=20), groups=BOTH, main=[frame("train.py", 20, "train")], world_size=2),
        state(1, call(4, group="tp", line=30), groups=BOTH, main=LOAD, world_size=2),
    ]
    found = diagnose("job", ranks)
    assert [fault.kind for fault in found.faults] == ["not_issued", "not_issued"]
    assert found.headline.endswith("rank 1 has not issued it: it is in `load_batch` at data.py:88")
    assert found.faults[1].message.startswith("rank 1 issued all_reduce #4 of group tp")
    assert "which has not ended there; rank 0 has not issued it" in found.faults[1].message


def test_a_group_that_was_destroyed_and_made_again_is_another_one() -> None:
    def twice(rank: int, second: int) -> RankState:
        old = [call(seq, "broadcast", done=True) for seq in range(1, 6)]
        new = [replace(call(seq, done=True), ns=10**6 + seq) for seq in range(1, second + 1)]
        return state(rank, *old, *new, world_size=2)

    assert diagnose("job", [twice(0, 3), twice(1, 2)]).verdict == "agree"


def steps_of_two_groups(last: IssuedCollective, *, skip: bool = False) -> list[IssuedCollective]:
    """Return three steps, each of one collective in `tp` at line 30 and one in `dp` at line 20, and what follows."""
    calls: list[IssuedCollective] = []
    for step in range(1, 4):
        calls.append(replace(call(step, group="tp", done=True, line=30), ns=10 * step))
        if not (skip and step == 3):
            calls.append(replace(call(step, group="dp", done=True, line=20), ns=10 * step + 5))
    return [*calls, replace(last, ns=100)]


def test_what_a_rank_has_left_out_is_told_by_its_earlier_steps() -> None:
    waits = [
        state(0, *steps_of_two_groups(call(3, group="dp", line=20), skip=True), groups=BOTH, world_size=2),
        state(1, *steps_of_two_groups(call(4, group="tp", line=30), skip=True), groups=BOTH, world_size=2),
    ]
    for order in (waits, waits[::-1]):
        (fault,) = diagnose("job", order).faults
        assert (fault.kind, fault.ranks, fault.waiting) == ("deadlock", [1], [0])
        assert fault.message.endswith(
            "because rank 1 left out all_reduce of group dp at train.py:20, "
            "which it had issued at this point each of the 2 times before"
        )


def test_a_different_order_is_not_called_left_out() -> None:
    found = diagnose(
        "job",
        [
            state(0, *steps_of_two_groups(call(4, group="dp", line=21)), groups=BOTH, world_size=2),
            state(1, *steps_of_two_groups(call(4, group="tp", line=31)), groups=BOTH, world_size=2),
        ],
    )
    assert "rank 1 left out" not in found.headline
    assert "different order" in found.headline


def test_of_a_chain_the_first_cause_comes_first() -> None:
    groups = {"dp": [0, 1], "tp": [1, 2]}
    found = diagnose(
        "job",
        [
            state(0, call(5, group="dp", line=10), groups=groups, world_size=3),
            state(1, call(6, group="tp", line=20), groups=groups, main=[frame("train.py", 20, "train")], world_size=3),
            state(2, groups=groups, main=LOAD, world_size=3),
        ],
    )
    assert [fault.ranks for fault in found.faults] == [[2], [1]]
    assert "it is in `load_batch` at data.py:88" in found.headline
    assert found.faults[1].message.endswith(
        "rank 1 has not issued it: it issued all_reduce #6 of group tp at train.py:20, which has not ended"
    )


def test_a_stuck_loader_worker_is_named() -> None:
    main = [Frame(function="_try_get_data", file=LOADER, line=1310), frame("train.py", 70, "train")]
    odd = state(3, call(811, done=True), main=main)
    worker = WorkerStack(pid=9, frames=[frame("data.py", 21, "read_sample")])
    odd = RankState(**{name: getattr(odd, name) for name in odd.__struct_fields__} | {"workers": [worker]})
    assert three_and(odd).headline.endswith(
        "it waits for its data loader at train.py:70, whose worker is in `read_sample` at data.py:21"
    )


def test_ranks_without_a_record_of_collectives() -> None:
    alone = RankState(rank=0, world_size=1, main=LOAD)
    found = diagnose("job", [alone])
    assert (found.verdict, found.headline) == (
        "unknown",
        "No rank was found to keep others waiting: rank 0 is in `load_batch` at data.py:88",
    )


def test_names_cannot_break_the_line() -> None:
    evil = state(0, call(1, "all\x1b[31m\nreduce"), world_size=2)
    found = diagnose("job", [evil, state(1, world_size=2)])
    assert found.headline.isprintable()


def test_thousands_of_groups_are_not_compared_two_by_two(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []

    def blocked(wait: Wait) -> set[int]:
        asked.append(wait.number)
        return set(wait.calls).difference(wait.at_work)

    monkeypatch.setattr(Wait, "blocked", property(blocked))
    groups = {f"g{number}": [0, 1] for number in range(300)}
    ahead, behind = ([call(seq, group=name) for name in groups] for seq in (2, 1))
    found = diagnose(
        "job", [state(0, *ahead, groups=groups, world_size=2), state(1, *behind, groups=groups, world_size=2)]
    )
    assert {(fault.kind, *fault.ranks) for fault in found.faults} == {("not_issued", 1)}
    assert len(found.faults) == 300
    assert len(asked) <= 4 * 300
