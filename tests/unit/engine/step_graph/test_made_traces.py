"""The graph of traces whose dependencies are known: what is on the path, and what a change does."""

from pathlib import Path

import pytest

from perfkit.engine.step_graph.replay import UNLIMITED, critical_path, slack
from tests.support.traces.step_graphs import delay, graph_of_built, node_named, on_path
from tests.support.traces.trace_builder import TraceBuilder


def one_rank() -> TraceBuilder:
    return TraceBuilder(world_size=1)


def test_a_busy_device_is_on_the_path_and_the_host_has_slack(tmp_path: Path) -> None:
    builder = one_rank().step(0, 0, 60)
    for number in range(3):  # each launched before the one before it is done
        builder.op("aten::mm", 10 * number, 8).launch(number + 1, 10 * number + 2, 4)
        builder.kernel("gemm", 5 + 100 * number, 100, number + 1)
    graph = graph_of_built(tmp_path, builder)
    found = on_path(graph)
    assert found["gemm"] == 300
    assert found["aten::mm"] == 2  # before the first launch
    assert found["lag: launch"] == 3
    assert delay(graph, node_named(graph, "gemm"), 7) == 7
    assert delay(graph, node_named(graph, "gemm"), -90) == -90
    # The last kernel could have been launched at 202 at the latest, for its launch takes 3 us: it was at 22.
    room = slack(graph)
    host = int((graph.nodes.start == graph.nodes.start.min() + 12_000).nonzero()[0][0])
    assert graph.nodes.end[host] - graph.nodes.start[host] == 10_000
    assert room[host] == 180_000


def test_a_slow_host_is_on_the_path_and_kernels_are_not(tmp_path: Path) -> None:
    builder = one_rank().step(0, 0, 300)
    for number in range(3):
        builder.op("aten::mm", 100 * number, 90).launch(number + 1, 100 * number + 80, 5)
        builder.kernel("gemm", 100 * number + 84, 10, number + 1)
    graph = graph_of_built(tmp_path, builder)
    found = on_path(graph)
    assert "gemm" not in found
    assert found["aten::mm"] == 3 * 85
    assert delay(graph, node_named(graph, "gemm"), 5) == 0
    # The last kernel ends at 294, before the host: of 20 us more, 14 delay the end.
    assert delay(graph, node_named(graph, "gemm", place=2), 20) == 14


@pytest.mark.parametrize("call", ["cudaStreamSynchronize", "cudaDeviceSynchronize", "cudaEventSynchronize"])
def test_the_host_waits_for_the_device_in_a_call_that_synchronises(tmp_path: Path, call: str) -> None:
    builder = one_rank().step(0, 0, 300).op("aten::mm", 0, 20).launch(1, 5, 5).kernel("gemm", 15, 150, 1)
    builder.launch(2, 20, 150, name=call).op("aten::add", 180, 100)
    graph = graph_of_built(tmp_path, builder)
    found = on_path(graph)
    assert found["gemm"] == 150
    assert found[call] == 5  # from the kernel's end to the return
    assert delay(graph, node_named(graph, "gemm"), -50) == -50
    # Without the kernel, the host arrives at the call at 20 and goes on at once: 145 earlier.
    assert delay(graph, node_named(graph, "gemm"), -150) == -145


def test_a_call_that_synchronises_but_finds_the_device_idle_waits_for_nothing(tmp_path: Path) -> None:
    builder = one_rank().step(0, 0, 300).op("aten::mm", 0, 20).launch(1, 5, 5).kernel("gemm", 15, 50, 1)
    builder.launch(2, 100, 20, name="cudaDeviceSynchronize").op("aten::add", 180, 100)
    graph = graph_of_built(tmp_path, builder)
    assert on_path(graph)["cudaDeviceSynchronize"] == 20
    assert delay(graph, node_named(graph, "gemm"), 10) == 0


def test_backward_on_a_thread_of_its_own_is_on_the_path(tmp_path: Path) -> None:
    builder = one_rank().step(0, 0, 400).op("aten::forward", 0, 100).op("aten::update", 310, 90)
    builder.launch(1, 50, 5).kernel("first", 58, 10, 1)
    builder.op("aten::backward", 110, 190, tid=2).launch(2, 250, 5, tid=2).kernel("second", 257, 10, 2)
    graph = graph_of_built(tmp_path, builder)
    found = on_path(graph)
    assert found["aten::backward"] == 185  # without its call to launch
    assert found["lag: handover"] == 10
    assert found["aten::update"] == 90
    assert sum(found.values()) == 400


def test_a_thread_that_works_beside_the_main_one_is_not_waited_for(tmp_path: Path) -> None:
    builder = one_rank().step(0, 0, 400).launch(1, 350, 5).kernel("first", 358, 10, 1)
    for number in range(4):
        builder.op("aten::forward", 100 * number, 90)
    builder.op("aten::copy", 20, 350, tid=2)
    found = on_path(graph_of_built(tmp_path, builder))
    assert "aten::copy" not in found


def test_a_thread_that_waits_for_the_device_until_the_end_of_the_trace_leads_to_the_device(tmp_path: Path) -> None:
    # Without steps the trace ends with the device, within the call that waits for it; most calls are on thread 2.
    builder = one_rank().launch(1, 0, 5, tid=2)
    for number in range(3):
        builder.launch(number + 2, 10 + 10 * number, 5, tid=2).kernel("gemm", 20 + 100 * number, 100, number + 2)
    builder.launch(9, 50, 280, name="cudaDeviceSynchronize")
    found = on_path(graph_of_built(tmp_path, builder))
    assert found == {"gemm": 300}  # the trace begins with the first work


def test_work_whose_launch_was_not_recorded_follows_what_ended_last_for_an_unknown_reason(tmp_path: Path) -> None:
    builder = one_rank().step(0, 0, 50).launch(1, 0, 5).kernel("gemm", 8, 92, 1, stream=7)
    builder.kernel("ncclDevKernel_AllReduce_Sum", 105, 200, stream=20)
    builder.kernel("adam", 320, 30, stream=7)
    found = on_path(graph_of_built(tmp_path, builder))
    assert (found["gemm"], found["adam"]) == (92, 30)
    assert found["lag: unlaunched"] == 5 + 15
    assert "lag: order" not in found


def test_streams_wait_for_each_other_after_a_call_that_makes_them(tmp_path: Path) -> None:
    builder = one_rank().step(0, 0, 50)
    builder.launch(1, 0, 5).kernel("gemm", 8, 200, 1, stream=7)
    builder.launch(2, 10, 2, name="cudaStreamWaitEvent")
    builder.launch(3, 14, 4).kernel("ncclDevKernel_AllReduce_Sum", 210, 100, 3, stream=20)
    builder.launch(4, 20, 2, name="cudaStreamWaitEvent")
    builder.launch(5, 24, 4).kernel("adam", 315, 30, 5, stream=7)
    graph = graph_of_built(tmp_path, builder)
    found = on_path(graph)
    assert (found["gemm"], found["all_reduce"], found["adam"]) == (200, 100, 30)
    assert found["lag: stream_wait"] == 2 + 5
    # Without the GEMM, the collective begins 8 us after its launch, as the GEMM did: at 22 instead of 210.
    assert delay(graph, node_named(graph, "gemm"), -200) == -188


def test_streams_do_not_wait_for_each_other_without_such_a_call(tmp_path: Path) -> None:
    builder = one_rank().step(0, 0, 50).launch(9, 1, 1, name="cudaStreamWaitEvent")
    builder.launch(1, 2, 5).kernel("gemm", 8, 200, 1, stream=7)
    builder.launch(3, 14, 4).kernel("copy", 210, 300, 3, stream=20)  # for a reason that the trace does not tell
    graph = graph_of_built(tmp_path, builder)
    assert "gemm" not in on_path(graph)
    assert on_path(graph)["lag: launch"] == 210 - 14
    assert slack(graph)[node_named(graph, "gemm")] == 510_000 - 208_000


def reducing(builder: TraceBuilder) -> TraceBuilder:
    """Launch a GEMM from 8 to 108, and three all-reduces that wait for it: until 210, 310 and 410."""
    builder.launch(1, 0, 5, tid=2).kernel("gemm", 8, 100, 1, stream=7)
    builder.launch(2, 10, 2, tid=2, name="cudaStreamWaitEvent")
    for number in range(3):
        builder.launch(3 + number, 14 + 6 * number, 4, tid=2)
        builder.kernel("ncclDevKernel_AllReduce_Sum", 110 + 100 * number, 100, 3 + number, stream=20)
    return builder


@pytest.mark.parametrize("thread", [1, 2, 3])
def test_a_thread_may_let_a_stream_wait_on_which_another_thread_launches(tmp_path: Path, thread: int) -> None:
    builder = reducing(one_rank().step(0, 0, 80)).launch(7, 40, 2, tid=2, name="cudaStreamWaitEvent")
    builder.launch(8, 60, 4, tid=thread).kernel("adam", 412, 30, 8, stream=7)
    graph = graph_of_built(tmp_path, builder)
    assert on_path(graph)["lag: stream_wait"] == 2 + 2
    assert delay(graph, node_named(graph, "all_reduce", place=2), -50) == -50


@pytest.mark.parametrize("awaited", [0, 1, 2])
def test_of_several_collectives_on_a_stream_a_kernel_waits_for_the_one_that_ended_last(
    tmp_path: Path, awaited: int
) -> None:
    builder = reducing(one_rank().step(0, 0, 80)).launch(7, 40, 2, tid=2, name="cudaStreamWaitEvent")
    builder.launch(8, 44, 4, tid=2).kernel("copy", 212 + 100 * awaited, 500, 8, stream=7)
    graph = graph_of_built(tmp_path, builder)
    assert delay(graph, node_named(graph, "all_reduce", place=awaited), -60) == -60


def test_a_thread_that_waits_over_the_end_of_a_step_has_done_nothing_there(tmp_path: Path) -> None:
    builder = one_rank().step(0, 0, 300).step(1, 300, 300)
    for step in range(2):
        begin, number = 300 * step, 10 * step
        builder.op("aten::forward", begin, 100).op("aten::update", begin + 210, 80)
        builder.op("aten::backward", begin + 105, 100, tid=2)
        builder.launch(number + 1, begin + 150, 5, tid=2).kernel("gemm", begin + 157, 10, number + 1)
    graph = graph_of_built(tmp_path, builder)
    thread = graph.nodes.lane == graph.lanes.index("thread 2")
    assert graph.duration_ns[thread].sum() == 200_000
    assert delay(graph, node_named(graph, "aten::forward", place=1), -90) == -90


def test_the_host_waits_in_a_last_call_for_the_device_over_the_ends_of_steps(tmp_path: Path) -> None:
    builder = one_rank().step(0, 0, 40).step(1, 40, 40)
    for step in range(2):
        builder.op("aten::mm", 40 * step, 20).launch(step + 1, 40 * step + 5, 5)
        builder.kernel("gemm", 20 + 500 * step, 500, step + 1)
    builder.launch(9, 90, 940, name="cudaDeviceSynchronize")
    graph = graph_of_built(tmp_path, builder)
    assert graph.duration_ns[graph.nodes.lane == graph.lanes.index("main thread")].sum() == 90_000
    assert delay(graph, node_named(graph, "gemm"), -400) == -400


@pytest.mark.parametrize(("launches", "waits"), [(700, True), (400, False)])
def test_a_launch_waits_while_much_is_queued(tmp_path: Path, launches: int, waits: bool) -> None:
    builder = one_rank().step(0, 0, 5 * launches + 6000)
    for number in range(launches):
        builder.launch(number, 5 * number, 4).kernel("gemm", 8 + 100 * number, 100, number)
    last = 5 * launches
    builder.launch(launches, last, 5000).kernel("gemm", 8 + 100 * launches, 100, launches)
    graph = graph_of_built(tmp_path, builder)
    host = graph.duration_ns[graph.nodes.lane == graph.lanes.index("main thread")].sum() / 1000
    assert (host < last + 1200) == waits


def gloo_rank(rank: int, late: int, transfer: int = 100) -> TraceBuilder:
    """A rank that computes for 100 us and `late` us more, reduces, waits for it, and updates for 50 us."""
    arrived, done = 100 + late, 300 + transfer
    builder = TraceBuilder(rank, 2, backend="gloo", host_name="one").step(0, 0, done + 60)
    builder.op("aten::mm", 0, 100 + late).op("c10d::allreduce_", arrived, 4)
    return builder.gloo("all_reduce", arrived + 5, done - arrived - 5).op("aten::add", done + 10, 50)


def test_ranks_wait_for_the_last_one_in_a_collective(tmp_path: Path) -> None:
    graph = graph_of_built(tmp_path, gloo_rank(0, 0), gloo_rank(1, 195))
    found = on_path(graph)
    # Rank 1 computes for 295 us and begins to reduce at 300: that takes 100 us on both, and both go on.
    assert found["aten::mm"] == 295
    assert found["all_reduce"] == 100
    assert found["lag: issue"] == 5
    assert found["aten::add"] == 50
    assert delay(graph, node_named(graph, "all_reduce", rank=0), 30) == 30
    assert delay(graph, node_named(graph, "all_reduce", rank=1), 30) == 30
    late = [int(node) for node in (graph.duration_ns == 295_000).nonzero()[0]]
    assert [int(graph.nodes.rank[node]) for node in late] == [1]
    # If rank 1 were as fast as rank 0, the step would be 195 us shorter; if faster still, no more.
    assert delay(graph, late[0], -195) == -195
    assert delay(graph, late[0], -250) == -195
    other = int((graph.duration_ns == 100_000).nonzero()[0][0])
    assert slack(graph)[other] == 195_000


def test_a_collective_whose_end_was_recorded_late_is_still_waited_for(tmp_path: Path) -> None:
    early = TraceBuilder(0, 2, backend="gloo", host_name="one").step(0, 0, 460)
    early.op("aten::mm", 0, 100).op("c10d::allreduce_", 100, 4)
    early.gloo("all_reduce", 105, 309).op("aten::add", 402, 10).op("aten::add", 412, 40)  # ends at 414
    found = on_path(graph_of_built(tmp_path, early, gloo_rank(1, 195)))
    assert found["aten::mm"] == 295


def test_copies_on_the_thread_of_the_backend_do_not_hide_the_wait_for_other_ranks(tmp_path: Path) -> None:
    """gloo copies what it has gathered on its own thread, while the main thread waits for it."""

    def copying_rank(rank: int, late: int) -> TraceBuilder:
        return gloo_rank(rank, late).op("aten::copy_", 380, 15, tid=50)

    graph = graph_of_built(tmp_path, copying_rank(0, 0), copying_rank(1, 195))
    late = int((graph.duration_ns == 295_000).nonzero()[0][0])
    assert delay(graph, late, -195) == -195


def test_a_hook_that_reduces_within_an_operator_waits_there(tmp_path: Path) -> None:
    builder = TraceBuilder(0, 2, backend="gloo", host_name="one").step(0, 0, 700).op("aten::mm", 0, 100)
    builder.op("autograd::engine::evaluate_function: AccumulateGrad", 100, 500).op("c10d::allreduce_", 150, 5)
    builder.gloo("all_reduce", 160, 390).op("aten::add", 600, 100)
    graph = graph_of_built(tmp_path, builder)
    assert on_path(graph)["all_reduce"] == 390
    assert delay(graph, node_named(graph, "all_reduce"), -300) == -300


def test_a_pause_long_before_the_end_of_a_collective_does_not_wait_for_it(tmp_path: Path) -> None:
    early = TraceBuilder(0, 2, backend="gloo", host_name="one").step(0, 0, 700)
    early.op("aten::mm", 0, 100).op("c10d::allreduce_", 100, 4).gloo("all_reduce", 105, 295)
    early.op("aten::sort", 200, 450)
    found = on_path(graph_of_built(tmp_path, early, gloo_rank(1, 195)))
    assert found["aten::sort"] == 450
    assert "all_reduce" not in found


def answering_ranks(late: int) -> tuple[TraceBuilder, TraceBuilder]:
    """Two ranks, of which one sends `late` us late with a blocking call, and the other answers at once.

    Neither runs another operator in between, and what the first does before it sends is not recorded.
    """
    sent, answered = 100 + late, 200 + late
    first = TraceBuilder(0, 2, backend="gloo", host_name="one").step(0, 0, answered + 100).op("aten::mm", 0, 100)
    first.op("c10d::send", sent, 5).gloo("send", sent + 2, 20)
    first.op("c10d::recv_", sent + 30, 5).gloo("recv", sent + 32, answered - sent - 2)
    first.op("aten::add", answered + 40, 50)
    second = TraceBuilder(1, 2, backend="gloo", host_name="one").step(0, 0, answered + 100).op("aten::mm", 0, 100)
    second.op("c10d::recv_", 100, 5).gloo("recv", 102, sent - 70)
    second.op("c10d::send", answered - 60, 5).gloo("send", answered - 58, 70).op("aten::add", answered + 20, 50)
    return first, second


def test_a_rank_that_sends_after_it_received_has_waited_for_the_receive(tmp_path: Path) -> None:
    graph = graph_of_built(tmp_path, *answering_ranks(2000))
    path = critical_path(graph)
    time_ns = (graph.nodes.end - graph.nodes.start)[path.node]
    late = path.node[time_ns == 2_100_000]  # what the first rank does before it sends
    assert graph.nodes.rank[late].tolist() == [0]
    assert time_ns[graph.nodes.rank[path.node] == 1].sum() < 200_000
    assert delay(graph, int(late[0]), -1500) == -1500


def test_a_rank_that_issues_a_collective_before_the_last_one_is_done_does_not_wait_for_that(tmp_path: Path) -> None:
    builder = TraceBuilder(0, 2, backend="gloo", host_name="one").step(0, 0, 800).op("aten::mm", 0, 100)
    builder.op("c10d::allreduce_", 100, 5).gloo("all_reduce", 102, 298)
    builder.op("c10d::allgather_", 300, 5).gloo("all_gather", 400, 200, tid=51).op("aten::add", 610, 190)
    graph = graph_of_built(tmp_path, builder)
    # From 100 to 300 the thread does something that was not recorded: all of it is its own.
    assert delay(graph, node_named(graph, "all_reduce"), -200) == 0
    assert 200_000 in graph.duration_ns[critical_path(graph).node].tolist()


def sending_ranks(send_us: int) -> tuple[TraceBuilder, TraceBuilder]:
    """Two ranks: one sends at 102 for `send_us`, waits for that and adds; the other receives 2 ms later, at 2102."""
    first = TraceBuilder(0, 2, backend="gloo", host_name="one").step(0, 0, send_us + 300).op("aten::mm", 0, 100)
    first.op("c10d::send", 100, 5).gloo("send", 102, send_us).op("aten::add", 102 + send_us + 20, 50)
    second = TraceBuilder(1, 2, backend="gloo", host_name="one").step(0, 0, 2300).op("aten::mm", 0, 2100)
    return first, second.op("c10d::recv_", 2100, 5).gloo("recv", 2102, 40).op("aten::add", 2150, 20)


def test_a_send_that_lasts_until_its_receive_waits_for_that(tmp_path: Path) -> None:
    graph = graph_of_built(tmp_path, *sending_ranks(2050))
    found = on_path(graph)
    assert found["aten::mm"] == 2100
    assert found["send"] == 50
    assert delay(graph, node_named(graph, "aten::mm", rank=1), -1500) == -1500
    assert delay(graph, node_named(graph, "aten::mm", rank=0), -50) == 0
    assert graph.violated == {}


def test_a_send_that_ends_before_its_receive_begins_waits_for_nothing(tmp_path: Path) -> None:
    graph = graph_of_built(tmp_path, *sending_ranks(200))
    room = slack(graph)
    assert graph.duration_ns[node_named(graph, "send")] == 200_000
    assert room[node_named(graph, "send")] > 1_500_000
    assert on_path(graph)["aten::mm"] == 2100
    assert "send" not in on_path(graph)
    assert graph.violated == {}


def test_without_the_other_rank_waiting_is_part_of_the_transfer(tmp_path: Path) -> None:
    graph = graph_of_built(tmp_path, gloo_rank(0, 0))
    assert on_path(graph)["all_reduce"] == 295


def test_a_rank_that_leaves_before_another_joins_waits_for_nothing_that_is_known(tmp_path: Path) -> None:
    early, late = gloo_rank(0, 0), TraceBuilder(1, 2, backend="gloo", host_name="one").step(0, 0, 700)
    late.op("aten::mm", 0, 400).op("c10d::allreduce_", 400, 4).gloo("all_reduce", 405, 20).op("aten::add", 500, 200)
    graph = graph_of_built(tmp_path, early, late)
    assert graph.violated == {"arrival": 1}
    assert on_path(graph)["aten::mm"] == 400


def test_what_no_step_waits_for_has_slack_without_limit(tmp_path: Path) -> None:
    builder = one_rank().step(0, 0, 100).step(1, 100, 100).op("aten::mm", 0, 50).op("aten::mm", 100, 50)
    builder.launch(1, 10, 5).kernel("gemm", 20, 30, 1).launch(2, 110, 5).kernel("gemm", 120, 30, 2)
    graph = graph_of_built(tmp_path, builder)
    assert (slack(graph) < UNLIMITED).all()
