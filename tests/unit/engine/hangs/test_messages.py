"""Who waits for whom in sends and receives, from made records."""

from msgspec.structs import replace

from perfkit.records.hang import AwaitedMessage, Diagnosis, MessageCount, MessageKind, RankState
from tests.support.hangs.rank_states import call, diagnose, frame, state

LOAD = [frame("data.py", 88, "load_batch")]


def count(kind: MessageKind, peer: int | None, number: int, group: str = "pp") -> MessageCount:
    return MessageCount(kind=kind, group=group, peer=peer, count=number)


def made(
    rank: int,
    *counts: MessageCount,
    recv: int | None = None,
    send: int | None = None,
    any_rank: bool = False,
    number: int = 5,
    tag: int = 0,
    ranks: int = 4,
) -> RankState:
    """Return a rank that waits in the message of a number, or else is in `load_batch`."""
    waits = recv is not None or send is not None or any_rank
    kind: MessageKind = "recv" if send is None else "send"
    peer = recv if send is None else send
    awaits = AwaitedMessage(kind=kind, group="pp", description="pp", peer=peer, tag=tag, number=number)
    main = [frame("pipe.py", 20, "step")] if waits else LOAD
    left = state(rank, groups={"pp": list(range(ranks))}, world_size=ranks, main=main)
    return replace(left, messages=list(counts), awaits=awaits if waits else None)


def found(*states: RankState, absent: dict[int, str] | None = None) -> Diagnosis:
    return diagnose("run", states, absent=absent)


def test_a_receive_without_a_send_names_the_peer_and_where_it_is() -> None:
    states = [made(rank) for rank in (0, 3)]
    report = found(*states, made(1, count("send", 2, 4)), made(2, count("recv", 1, 5), recv=1))
    assert report.headline == (
        "rank 2 waits in recv from rank 1 of group pp at pipe.py:20; "
        "rank 1 has not sent it: it is in `load_batch` at data.py:88"
    )
    (fault,) = report.faults
    assert (fault.kind, fault.group, fault.op, fault.ranks, fault.waiting) == ("not_issued", "pp", "recv", [1], [2])


def test_a_send_without_a_receive_names_the_peer() -> None:
    report = found(made(0, count("send", 1, 5), send=1, ranks=2), made(1, count("recv", 0, 4), ranks=2))
    assert "rank 0 waits in send to rank 1 of group pp at pipe.py:20; rank 1 has not received it" in report.headline


def test_nothing_is_claimed_where_the_other_end_was_issued() -> None:
    sent = made(1, count("send", 0, 5), ranks=2)
    report = found(made(0, recv=1, ranks=2), sent)
    assert (report.verdict, report.faults) == ("unknown", [])
    received_from_any = made(1, count("recv", 0, 4), count("recv", None, 1), ranks=2)
    assert found(made(0, send=1, ranks=2), received_from_any).faults == []
    in_another_group = made(1, count("send", 0, 5, group="dp"), ranks=2)
    assert found(made(0, recv=1, ranks=2), in_another_group).faults[0].ranks == [1]


def test_nothing_is_claimed_of_a_rank_whose_messages_were_not_counted() -> None:
    uncounted = replace(made(1, ranks=2), messages=None)
    assert found(made(0, recv=1, ranks=2), uncounted).faults == []


def test_what_is_known_of_a_rank_that_is_gone_is_said_without_more() -> None:
    report = found(made(0, recv=1, ranks=2), absent={1: "is stopped (SIGSTOP, or a debugger)"})
    assert report.headline.endswith("at pipe.py:20; rank 1 is stopped (SIGSTOP, or a debugger)")


def test_ranks_that_wait_for_each_other_are_named_as_a_circle() -> None:
    report = found(made(0, recv=2), made(1, recv=0), made(2, recv=1), made(3, recv=2))
    first, second = report.faults
    assert (first.kind, first.ranks) == ("deadlock", [0, 1, 2])
    assert first.message.startswith("rank 0 waits in recv from rank 2 of group pp at pipe.py:20; rank 2 waits in recv")
    assert first.message.endswith(": they wait for each other")
    assert (second.ranks, second.waiting) == ([2], [3])
    assert "rank 2 has not sent it: it waits in recv from rank 1" in second.message


def test_the_end_of_a_chain_comes_first() -> None:
    report = found(made(0), made(1, recv=0), made(2, recv=1), made(3, recv=2))
    assert [fault.ranks for fault in report.faults] == [[0], [1], [2]]


def test_different_tags_of_one_message_are_named() -> None:
    sends = made(0, count("send", 1, 5), send=1, tag=7, ranks=2)
    receives = made(1, count("recv", 0, 5), recv=0, ranks=2)
    report = found(sends, receives)
    assert "rank 0 waits in send to rank 1 with tag 7 of group pp" in report.headline
    assert report.headline.endswith("they wait for each other")
    same_tag = made(0, count("send", 1, 5), send=1, ranks=2)
    assert found(same_tag, receives).faults == []


def test_a_receive_from_any_names_all_that_have_not_sent() -> None:
    waits = made(3, count("recv", None, 5), any_rank=True)
    report = found(*(made(rank, count("send", 3, 1)) for rank in range(3)), waits)
    assert report.headline == (
        "rank 3 waits in recv from any rank of group pp at pipe.py:20; "
        "ranks 0-2 have not sent it: they are in `load_batch` at data.py:88"
    )
    enough = [made(0, count("send", 3, 5)), made(1), made(2)]
    assert found(*enough, waits).faults == []
    assert found(made(0), made(1), waits).faults == []  # rank 2 may have sent


def test_a_collective_waits_for_a_rank_that_waits_for_a_message() -> None:
    groups = {"pp": [0, 1, 2]}
    reduces = state(0, call(5), groups={**groups, "dp": [0, 1, 2]}, world_size=3)
    sleeps = replace(made(1, ranks=3), collectives=[call(4, done=True), call(5)])
    waits = replace(made(2, recv=1, ranks=3), collectives=[call(4, done=True)])
    report = found(reduces, sleeps, waits)
    assert report.faults[0].ranks == [1]
    assert "rank 2 has not issued it: it waits in recv from rank 1" in report.faults[1].message
