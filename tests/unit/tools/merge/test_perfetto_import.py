"""Merged timelines, imported by Perfetto's own trace processor: nothing is lost or misplaced."""

import json
import shutil
import zlib
from collections.abc import Mapping
from pathlib import Path

import pytest

import perfkit
from perfkit.tools.merge.merge import merge
from perfkit.trace.lanes import MOST_LANES
from tests.support.processes.launching import ROOT
from tests.support.traces.trace_builder import BASE_NS, TraceBuilder
from tests.support.traces.trace_processor import SLICES, TraceProcessor, needs_trace_processor, slices

SAMPLE = ROOT / "traces" / "sample-memory"
FORMATS = (".pftrace", ".json", ".json.gz")
"""What is decided before a format is written is tested in one of them."""
HOSTILE = (
    '</script><img src=x onerror="alert(1)">',
    "\x1b[31mred\x07",
    "=cmd|' /C calc'!A0",
    "SURROGATE half",
    "ü" * 5000,
)

pytestmark = needs_trace_processor


def two_ranks(folder: Path, *, late_us: int = 0, host: str | None = None, clock_us: int = 0) -> None:
    """Write two ranks with two steps and an all-reduce in each, which rank 1 joins late."""
    for rank in (0, 1):
        builder = TraceBuilder(rank=rank, world_size=2, host_name=f"{host}{rank}" if host else "one")
        shift = clock_us * rank
        for step in (0, 1):
            begin = 1000 * step + shift
            builder.step(step, begin, 900).op("aten::mm", begin + 10, 30).launch(10 * step + 1, begin + 20, 5)
            builder.kernel("gemm", begin + 50, 200, 10 * step + 1)
            builder.record_param_comms("allreduce", begin + 60, 30, in_elements=1000, sequence=step)
            builder.launch(10 * step + 2, begin + 70, 5)
            join = begin + 300 + late_us * rank
            builder.kernel("ncclDevKernel_AllReduce", join, begin + 800 - join, 10 * step + 2, stream=20)
        builder.write(folder / f"rank{rank}.json.gz")


@pytest.mark.parametrize("suffix", FORMATS)
def test_all_that_is_written_is_imported(suffix: str, tmp_path: Path) -> None:
    output = tmp_path / f"merged{suffix}"
    merged = merge(SAMPLE, output)
    timeline = TraceProcessor(output)
    assert timeline.errors() == {}
    assert timeline.column("select count(*) from slice") == [merged.slices]
    assert timeline.column("select count(*) from slice where dur < 0") == [0]
    assert timeline.column("select name from process where name is not null order by 1") == ["rank 0", "rank 1"]
    assert timeline.column("select distinct tid from thread where tid > 100000 and name is not null") == []
    assert timeline.column("select count(*) from flow") == [3]  # one all-reduce per step, of two ranks
    report = perfkit.analyze(SAMPLE).runs[0]
    for rank in report.ranks:
        shown = slices(timeline, f"process = 'rank {rank.rank}' and thread = 'perfkit: step'")
        assert [row["name"] for row in shown] == [f"step {step.step}" for step in rank.steps]
        assert [row["dur"] for row in shown] == [step.wall_ns for step in rank.steps]


def test_ranks_are_ordered_by_the_file(tmp_path: Path) -> None:
    """By what Perfetto's own schema calls so: its UI does it from version 57 on."""
    from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace, TrackDescriptor

    output = tmp_path / "merged.pftrace"
    merge(SAMPLE, output)
    plain = Trace()
    for packet in Trace.FromString(output.read_bytes()).packet:
        plain.MergeFromString(zlib.decompress(packet.compressed_packets))
    tracks = [packet.track_descriptor for packet in plain.packet if packet.HasField("track_descriptor")]
    roots = [track.process_ordering for track in tracks if track.HasField("uuid") and track.uuid == 0]
    assert roots == [TrackDescriptor.PROCESS_ORDERING_EXPLICIT]
    order = {track.process.process_name: track.sibling_order_rank for track in tracks if track.HasField("process")}
    assert order == {"rank 0": 0, "rank 1": 1}


def test_the_rank_that_delays_the_others_longest_is_known(tmp_path: Path) -> None:
    two_ranks(tmp_path, late_us=300)
    assert merge(tmp_path, tmp_path / "late.pftrace").latest_rank == 1
    (tmp_path / "rank1.json.gz").unlink()
    assert merge(tmp_path, tmp_path / "alone.pftrace").latest_rank is None


@pytest.mark.parametrize("suffix", FORMATS[:1])
def test_where_the_time_goes_adds_up_to_the_report(suffix: str, tmp_path: Path) -> None:
    output = tmp_path / f"merged{suffix}"
    merge(SAMPLE, output)
    timeline = TraceProcessor(output)
    for rank in perfkit.analyze(SAMPLE).runs[0].ranks:
        mine = f"process = 'rank {rank.rank}'"
        begins = [row["ts"] for row in slices(timeline, f"{mine} and thread = 'perfkit: step'")]
        for step, begin in zip(rank.steps, begins, strict=True):
            shown = slices(
                timeline,
                f"{mine} and thread glob 'perfkit: where*' and ts >= {begin} and ts < {begin} + {step.wall_ns}",
            )
            sums: dict[object, int] = {}
            for row in shown:
                sums[row["name"]] = sums.get(row["name"], 0) + int(str(row["dur"]))
            exposed = {name: getattr(step.exposed_ns, name) for name in step.exposed_ns.__struct_fields__}
            assert sums == {name: time_ns for name, time_ns in exposed.items() if time_ns}


@pytest.mark.parametrize("suffix", FORMATS[:1])
def test_who_waits_for_whom_is_shown_on_one_clock(suffix: str, tmp_path: Path) -> None:
    two_ranks(tmp_path, late_us=100, host="node", clock_us=5_000_000)
    output = tmp_path / f"merged{suffix}"
    merge(tmp_path, output)
    timeline = TraceProcessor(output)
    assert timeline.errors() == {}
    waits = slices(timeline, "thread = 'perfkit: waits for another rank'")
    late = slices(timeline, "thread = 'perfkit: delays other ranks'")
    assert {(row["process"], row["name"], row["dur"]) for row in waits} == {
        ("rank 0", "waits for rank 1: all_reduce", 100_000)
    }
    assert {(row["process"], row["name"], row["dur"]) for row in late} == {
        ("rank 1", "delays others: all_reduce", 100_000)
    }
    # After alignment one rank waits exactly while the other is late, although their clocks were five seconds apart.
    assert [row["ts"] for row in waits] == [row["ts"] for row in late]
    steps = slices(timeline, "thread = 'perfkit: step' and name = 'step 0'")
    assert steps[0]["ts"] == steps[1]["ts"]
    assert len(waits) == 2


@pytest.mark.parametrize("suffix", FORMATS[:2])
def test_arrows_go_from_launches_to_kernels_and_through_collectives(suffix: str, tmp_path: Path) -> None:
    two_ranks(tmp_path, late_us=100)
    output = tmp_path / f"merged{suffix}"
    merge(tmp_path, output)
    rows = TraceProcessor(output).query(f"""
        with s as (select slice.id, q.* from slice join ({SLICES.replace("select ", "select slice.id as sid, ", 1)}) q
                   on q.sid = slice.id)
        select a.process || ': ' || a.name as begins, b.process || ': ' || b.name as ends, count(*) as n
        from flow join s a on flow.slice_out = a.id join s b on flow.slice_in = b.id group by 1, 2 order by 1, 2
    """)
    kernel = "ncclDevKernel_AllReduce"
    assert [(row["begins"], row["ends"], row["n"]) for row in rows] == [
        ("rank 0: cudaLaunchKernel", "rank 0: gemm", 2),
        ("rank 0: cudaLaunchKernel", f"rank 0: {kernel}", 2),
        (f"rank 0: {kernel}", f"rank 1: {kernel}", 2),
        ("rank 1: cudaLaunchKernel", "rank 1: gemm", 2),
        ("rank 1: cudaLaunchKernel", f"rank 1: {kernel}", 2),
    ]


@pytest.mark.parametrize("suffix", FORMATS[:2])
def test_counters_count_bytes(suffix: str, tmp_path: Path) -> None:
    two_ranks(tmp_path)
    memory: Mapping[str, object] = {"Total Allocated": 4096, "Device Type": 1, "Device Id": 0, "Bytes": 4096, "Addr": 1}
    builder = TraceBuilder(rank=0, world_size=2).step(0, 0, 100).op("aten::mm", 10, 50)
    builder.raw({"ph": "i", "s": "t", "name": "[memory]", "pid": 1, "tid": 1, "ts": 5, "args": memory})
    builder.raw(
        {"ph": "i", "s": "t", "name": "[memory]", "pid": 1, "tid": 1, "ts": 7, "args": {"Total Allocated": "x"}}
    )
    alone = builder.write(tmp_path / "alone.json.gz")
    both = tmp_path / f"both{suffix}"
    (tmp_path / "run").mkdir()
    for rank in (0, 1):
        shutil.move(tmp_path / f"rank{rank}.json.gz", tmp_path / "run")
    merge(tmp_path / "run", both)
    counters = (
        "select distinct counter_track.name, value from counter join counter_track on track_id = counter_track.id"
    )
    shown = {(row["name"].removesuffix(" bytes"), row["value"]) for row in TraceProcessor(both).query(counters)}
    assert shown == {("perfkit: bytes in flight", 4000.0), ("perfkit: bytes in flight", 0.0)}
    merge(alone, both)
    shown = {(row["name"].removesuffix(" bytes"), row["value"]) for row in TraceProcessor(both).query(counters)}
    assert shown == {("perfkit: memory allocated, device 0", 4096.0)}


@pytest.mark.parametrize("suffix", FORMATS[1:2])
def test_chosen_ranks_and_steps_only(suffix: str, tmp_path: Path) -> None:
    two_ranks(tmp_path, late_us=100)
    output = tmp_path / f"merged{suffix}"
    merge(tmp_path, output, ranks="1", steps="1")
    timeline = TraceProcessor(output)
    assert timeline.column("select name from process where name is not null") == ["rank 1"]
    assert timeline.column("select name from slice where name glob '*tep*' order by 1") == ["ProfilerStep#1", "step 1"]
    assert timeline.column("select count(*) from slice where name in ('gemm', 'ncclDevKernel_AllReduce')") == [2]
    # Rank 0 is not shown, and yet waited.
    assert timeline.column("select name from slice where name glob 'delays*'") == ["delays others: all_reduce"]
    assert timeline.column("select count(*) from flow") == [2]


@pytest.mark.parametrize("suffix", FORMATS[1:2])
def test_cycles_of_a_rank_follow_one_another_on_its_tracks(suffix: str, tmp_path: Path) -> None:
    for cycle in (0, 1):
        begin = 10_000 * cycle
        builder = TraceBuilder(rank=0, world_size=1).step(cycle, begin, 900).op("aten::mm", begin + 10, 30)
        builder.annotation("crosses", begin + 20, 50)
        builder.write(tmp_path / f"rank0.cycle{cycle}.json.gz")
    output = tmp_path / f"merged{suffix}"
    merge(tmp_path, output)
    timeline = TraceProcessor(output)
    assert timeline.errors() == {}
    assert timeline.column("select name from process where name is not null") == ["rank 0"]
    names = timeline.column("select name from thread where tid between 1 and 99 order by tid")
    assert names == [
        "perfkit: step",
        "perfkit: where the time goes",
        "thread 1",
        "thread 1 (2)",
        "thread PyTorch Profiler",
    ]
    assert [row["name"] for row in slices(timeline, "thread = 'perfkit: step'")] == ["step 0", "step 1"]


@pytest.mark.parametrize("suffix", FORMATS[:1])
def test_ranks_whose_clock_is_none_of_the_others_begin_with_them(suffix: str, tmp_path: Path) -> None:
    for rank, (host, base_ns, begin) in enumerate(
        (("b", None, 0), ("b", None, 100), ("a", BASE_NS, 0), ("c", None, 7))
    ):
        builder = TraceBuilder(rank=rank, world_size=6, base_ns=base_ns, host_name=host)
        builder.step(0, begin, 900).op("aten::mm", begin + 10, 30).write(tmp_path / f"rank{rank}.json.gz")
    TraceBuilder(rank=4, world_size=6, host_name="a").step(0, 50, 900).op("aten::mm", 60, 30).write(
        tmp_path / "r4.json"
    )
    TraceBuilder(rank=5, world_size=6, host_name="d").step(0, 60, 900).op("aten::mm", 60, 30).write(
        tmp_path / "r5.json"
    )
    output = tmp_path / f"merged{suffix}"
    merged = merge(tmp_path, output)
    timeline = TraceProcessor(output)
    assert timeline.errors() == {}
    assert timeline.column("select count(*) from slice") == [merged.slices]
    steps = {row["process"]: int(str(row["ts"])) for row in slices(timeline, "name = 'ProfilerStep#0'")}
    first = steps["rank 2"]
    assert {rank: begin - first for rank, begin in steps.items()} == {
        "rank 0": 0,
        "rank 1": 100_000,  # on the clock that it shares with rank 0
        "rank 2": 0,
        "rank 3": 0,
        "rank 4": 50_000,
        "rank 5": 60_000,
    }
    moved = "its clock is 20,454 days off the others; it is shown as beginning with them"
    assert merged.warnings == [
        f"rank 0: {moved}",
        f"rank 1: {moved}",
        "rank 2: no collective links the clock of a to the first rank's; it is shown unaligned",
        f"rank 3: {moved}",
        "rank 4: no collective links the clock of a to the first rank's; it is shown unaligned",
        "rank 5: no collective links the clock of d to the first rank's; it is shown unaligned",
    ]


@pytest.mark.parametrize("suffix", FORMATS[:2])
def test_times_without_a_base_may_be_negative(suffix: str, tmp_path: Path) -> None:
    builder = TraceBuilder(base_ns=None).step(0, 0, 100).op("before", -5, 3).op("aten::mm", 10, 50)
    builder.write(tmp_path / "rank0.json")
    output = tmp_path / f"merged{suffix}"
    assert merge(tmp_path / "rank0.json", output).warnings == []
    begins = {row["name"]: int(str(row["ts"])) for row in slices(TraceProcessor(output), "category = 'cpu_op'")}
    assert begins["aten::mm"] - begins["before"] == 15_000


@pytest.mark.parametrize("suffix", FORMATS[1:2])
def test_what_crosses_too_much_to_be_shown_is_counted(suffix: str, tmp_path: Path) -> None:
    builder = TraceBuilder().step(0, 0, 1000)
    for place in range(200):
        builder.op("crosses", 10 + place, 400)
    builder.write(tmp_path / "rank0.json")
    output = tmp_path / f"merged{suffix}"
    merged = merge(tmp_path / "rank0.json", output)
    timeline = TraceProcessor(output)
    assert timeline.column("select count(*) from slice where name = 'crosses'") == [MOST_LANES]
    assert timeline.column("select count(*) from slice") == [merged.slices]
    assert merged.warnings == ["rank 0: skipped 136 slices that need more than 64 lanes per thread"]


@pytest.mark.parametrize("suffix", FORMATS[1:2])
def test_one_bad_instant_moves_nothing_else(suffix: str, tmp_path: Path) -> None:
    mark = {"ph": "i", "s": "t", "name": "[memory]", "pid": 1, "tid": 1}
    memory = {"Total Allocated": 4096, "Device Type": 1, "Device Id": 0, "Bytes": 4096, "Addr": 1}
    builder = TraceBuilder().step(0, 0, 1000).op("aten::mm", 10, 50).raw(mark | {"ts": 20, "args": memory})
    shown = []
    for bad in ((), (-BASE_NS // 1000, 10**14), (-(10**14),)):
        for instant in bad:
            builder.raw(mark | {"ts": instant, "args": memory})
        builder.write(tmp_path / "rank0.json")
        output = tmp_path / f"merged{suffix}"
        merged = merge(tmp_path / "rank0.json", output)
        timeline = TraceProcessor(output)
        assert timeline.errors() == {}
        run = slices(timeline, "thread <> 'thread PyTorch Profiler'")  # its slice spans everything
        shown.append([*run, *timeline.query("select ts, value from counter")])
    assert shown[0] == shown[1] == shown[2]
    assert len(shown[0]) == merged.slices + 1
    assert merged.warnings == ["rank 0: skipped 4 events, days before or months after the run"]


@pytest.mark.parametrize("suffix", FORMATS[:2])
def test_hostile_names_and_numbers_stay_names_and_numbers(suffix: str, tmp_path: Path) -> None:
    builder = TraceBuilder(rank=2**40, world_size=2).step(0, 0, 1000)
    for place, name in enumerate(HOSTILE):
        builder.op(name, 10 + place, 1, cat="cpu_op" if place else HOSTILE[0])
    builder.op("crosses", 5, "7.5").op("late", 10**12, 10**12).op("early", -(10**13), 5).op("negative", 20, -5)
    builder.event("user_annotation", "elsewhere", 30, 5, pid=HOSTILE[1], tid=HOSTILE[0])
    builder.event("kernel", "k", 30, 5, pid=2**70, tid=-1).event("kernel", "empty", 50, 0, pid=2**70, tid=-1)
    # Half of a surrogate pair, which UTF-8 cannot encode, and bytes that are not UTF-8.
    text = builder.to_bytes().replace(b"SURROGATE", b"\\ud800").replace(b"elsewhere", b"else\xffwhere")
    (tmp_path / "rank5.json").write_bytes(text)
    output = tmp_path / f"merged{suffix}"
    merge(tmp_path / "rank5.json", output)
    timeline = TraceProcessor(output)
    assert timeline.errors() == {}
    assert timeline.column("select name from process where name is not null") == [f"rank {2**40}"]
    names = set(timeline.column("select name from slice"))
    # In JSON, Perfetto does not decode escaped control characters.
    escaped = HOSTILE[1] if suffix == ".pftrace" else json.dumps(HOSTILE[1])[1:-1]
    assert {HOSTILE[0], escaped, HOSTILE[2], HOSTILE[4], "crosses", "k", "empty", "negative"} <= names
    assert "early" not in names


def test_a_native_timeline_is_smaller_than_the_compressed_json_it_comes_from(real_traces: Path, tmp_path: Path) -> None:
    for name in ("gpu-dlrm-2of128", "mi300-resnet-ddp-1of8", "nccl-metadata-1of2"):
        merged = merge(real_traces / name, tmp_path / f"{name}.pftrace")
        assert merged.bytes < sum(file.stat().st_size for file in (real_traces / name).iterdir())
        timeline = TraceProcessor(tmp_path / f"{name}.pftrace")
        assert timeline.errors() == {}
        assert timeline.column("select count(*) from slice") == [merged.slices]
