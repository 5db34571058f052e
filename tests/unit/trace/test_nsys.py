"""Recordings of Nsight Systems give the same events, ranks and numbers as traces of torch.profiler."""

import os
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

import perfkit
from perfkit.errors import NotATraceError, TraceError
from perfkit.records.rank import StepBreakdown
from perfkit.records.run import RunReport
from perfkit.tools.merge.merge import merge
from perfkit.trace.events import NO_START, EventKind
from perfkit.trace.nsys.columns import UNFINISHED
from perfkit.trace.nsys.names import Name, parse
from perfkit.trace.reader import read_trace
from tests.support.traces.nsys_file import SCHEMAS, START_NS, NsysFile, Schema, from_torch_trace, query
from tests.support.traces.nsys_training import ANY, BYTES, MS, active_ns, first_pid, training

TRACES = Path(__file__).parents[2] / "data" / "traces"


def analyzed(path: Path) -> RunReport:
    return perfkit.analyze(path, cache=False).runs[0]


def steps_of(run: RunReport) -> list[StepBreakdown]:
    return [step for rank in run.ranks for step in rank.steps]


@pytest.mark.parametrize("schema", SCHEMAS)
def test_breakdown_is_that_of_an_independent_query(schema: Schema, tmp_path: Path) -> None:
    path = training(tmp_path / "run.sqlite", schema)

    steps = steps_of(analyzed(path))

    assert [step.step for step in steps] == [0, 1, 2, 3, 4, 5]
    for step in steps:
        begin = step.start_ns - START_NS
        active = active_ns(path, begin, begin + step.wall_ns)
        assert (step.total_ns.compute, step.total_ns.communication, step.total_ns.memcpy) == (
            active["compute"],
            active["communication"],
            active["memcpy"],
        )
        assert step.exposed_ns.overhead + step.exposed_ns.data_loading == step.wall_ns - active[ANY]
        assert active["compute"] > 3 * MS
        assert active["communication"] > 6 * MS


@pytest.mark.parametrize(("schema", "name"), [("2022", "nccl-metadata-1of2"), ("2025", "mi300-resnet-ddp-1of8")])
def test_breakdown_is_that_of_the_other_recorder(schema: Schema, name: str, tmp_path: Path) -> None:
    source = TRACES / name / "rank0.json.gz"
    expected, found = analyzed(source), analyzed(from_torch_trace(source, tmp_path / "rank0.sqlite", schema))

    assert [(step.step, step.exposed_ns, step.idle_ns) for step in steps_of(found)] == [
        (step.step, step.exposed_ns, step.idle_ns) for step in steps_of(expected)
    ]
    assert found.ranks[0].operators[0].name == expected.ranks[0].operators[0].name


@pytest.mark.parametrize("schema", SCHEMAS[1:])
def test_processes_of_one_file_are_ranks_as_nccl_numbers_them(schema: Schema, tmp_path: Path) -> None:
    path = training(tmp_path / "run.sqlite", schema, ranks=3, late=1, steps=12)

    run = analyzed(path)

    assert [rank.rank for rank in run.ranks] == [0, 1, 2]
    assert [rank.traces for rank in run.ranks] == [[f"run.sqlite@{first_pid(rank)}"] for rank in range(3)]
    assert run.cross_rank is not None
    (collective,) = run.ranks[0].collectives
    described = collective.operator, collective.bytes, collective.group, collective.group_size
    assert described == ("all_reduce", BYTES, "0xabc", 3)
    header = read_trace(tmp_path / f"run.sqlite@{first_pid(1)}").header
    assert (header.rank, header.world_size, header.host, header.base_ns) == (1, 3, "node1", START_NS)
    assert merge(path, tmp_path / "run.pftrace").ranks == 3


def test_processes_without_communicators_are_numbered_by_their_devices(tmp_path: Path) -> None:
    training(tmp_path / "run.sqlite", "2022", ranks=2)

    assert [(rank.rank, rank.traces) for rank in analyzed(tmp_path).ranks] == [
        (0, ["run.sqlite@100"]),
        (1, ["run.sqlite@101"]),
    ]
    with pytest.raises(TraceError, match="has 2 processes: give one of them"):
        read_trace(tmp_path / "run.sqlite")


def test_torchs_operators_are_told_by_their_texts(tmp_path: Path) -> None:
    events = read_trace(training(tmp_path / "run.sqlite", "2025", steps=2)).events

    (operators,) = [events.rows(EventKind.OPERATOR)]
    assert [events.names[name] for name in events.name[operators]] == ["aten::addmm"] * 2
    assert events.operator_args.sequence_of(operators).tolist() == [0, 1]
    launches = {events.names[name] for name in events.name[events.rows(EventKind.LAUNCH)]}
    assert launches == {"cudaMemcpyAsync", "cudaLaunchKernel", "cudaLaunchKernelExC"}


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("aten::mm, seq = 7, op_id = 3, sizes = [[2, 3], [3, 4]]", Name("aten::mm", True, 7)),
        ("AddmmBackward0, seq = 7", Name("AddmmBackward0", True, 7)),
        ("aten::empty", Name("aten::empty", True, -1)),
        ("Optimizer.step#Adam.step, op_id = 12", Name("Optimizer.step#Adam.step", False, -1)),
        ("Model::forward", Name("Model::forward", False, -1)),
        ("lr = 3, loss", Name("lr = 3, loss", False, -1)),
        ("cudaMemcpyAsync_v3020_ptsz", Name("cudaMemcpyAsync", False, -1)),
    ],
)
def test_texts_are_taken_apart(text: str, name: Name) -> None:
    assert parse(text) == name


def test_whole_graphs_are_compute_and_said_to_be(tmp_path: Path) -> None:
    out = NsysFile(tmp_path / "run.sqlite", "2025")
    out.range("ProfilerStep#0", 0, 10 * MS)
    out.call("cudaGraphLaunch_v10000", MS, 2 * MS, 1)
    out.graph(4, 3 * MS, 7 * MS, 1)

    run = analyzed(out.write())

    assert steps_of(run)[0].total_ns.compute == 4 * MS
    assert any("cuda-graph-trace=node" in finding.message for finding in run.findings)


def test_times_of_the_epoch_are_not_shifted(tmp_path: Path) -> None:
    out = NsysFile(tmp_path / "run.sqlite", "2025")
    out.kernel("gemm", START_NS + MS, START_NS + 2 * MS, 1)

    assert read_trace(out.write()).events.start_ns.tolist() == [START_NS + MS]


# ---- damage and attacks --------------------------------------------------------------------------------------------


def _without(statement: str) -> Callable[[Path], None]:
    def change(path: Path) -> None:
        query(path, "SELECT 1")
        with closing(sqlite3.connect(path)) as database:
            database.executescript(statement)

    return change


def _cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def _other(path: Path) -> None:
    path.unlink()
    _without("CREATE TABLE runs (id INTEGER)")(path)


KERNEL = "CUPTI_ACTIVITY_KIND_KERNEL"


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (_other, "is an SQLite database, but not one that `nsys export` wrote"),
        (_without("DROP TABLE StringIds"), "nsys 2025.4.1.0 has no table StringIds"),
        (
            _without(f"ALTER TABLE {KERNEL} RENAME COLUMN correlationId TO correlation"),
            f"nsys 2025.4.1.0 has a table {KERNEL} without the column correlationId",
        ),
        (_cut, "is incomplete: it has"),
        (
            # Nothing that is computed counts as a table.
            _without(f"CREATE TABLE k AS SELECT * FROM {KERNEL}; DROP TABLE {KERNEL}; DROP TABLE NVTX_EVENTS;"
                     "DROP TABLE CUPTI_ACTIVITY_KIND_RUNTIME; DROP TABLE CUPTI_ACTIVITY_KIND_MEMCPY;"
                     "DROP TABLE CUPTI_ACTIVITY_KIND_MEMSET; DROP TABLE CUPTI_ACTIVITY_KIND_GRAPH_TRACE;"
                     f"CREATE VIEW {KERNEL} AS SELECT * FROM k"),
            f"has no table {KERNEL}",
        ),
    ],
)  # fmt: skip
def test_what_cannot_be_read_is_refused_by_name(damage: Callable[[Path], None], message: str, tmp_path: Path) -> None:
    path = training(tmp_path / "run.sqlite", "2025", steps=1)
    damage(path)

    with pytest.raises(TraceError, match=message) as error:
        read_trace(path)

    assert isinstance(error.value, NotATraceError) == (damage is _other)


def test_pages_that_share_their_children_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "run.sqlite"
    out = NsysFile(path, "2025")
    for row in range(3000):
        out.call("cudaLaunchKernel", row, row + 1, row + 1)
    out.write()
    _without("PRAGMA page_size = 512; VACUUM")(path)
    _refer_to_each_other(path, "CUPTI_ACTIVITY_KIND_RUNTIME")

    with pytest.raises(TraceError, match="has more rows than the file has room for"):
        read_trace(path)


def _refer_to_each_other(path: Path, table: str) -> None:
    """Replace leaves of a table by inner pages, of which each refers to the next one many times."""
    size, data = 512, bytearray(path.read_bytes())
    ((root,),) = query(path, f"SELECT rootpage FROM sqlite_schema WHERE name = '{table}'")

    def page(number: int) -> bytearray:
        return data[(number - 1) * size : number * size]

    def children(content: bytearray) -> list[int]:
        """Return the offsets of a page's references to others."""
        cells = int.from_bytes(content[3:5])
        return [8, *(int.from_bytes(content[at : at + 2]) for at in range(12, 12 + 2 * cells, 2))]

    inner = int.from_bytes(page(root)[8:12]) if data[(root - 1) * size] == 5 else root
    first = page(root)[children(page(root))[1] :][:4]
    inner = int.from_bytes(first)
    model = page(inner)
    leaves = [int.from_bytes(model[at : at + 4]) for at in children(model)]
    for here, following in zip([inner, *leaves[:3]], leaves[:4], strict=True):
        copy = bytearray(model)
        for at in children(copy):
            copy[at : at + 4] = following.to_bytes(4)
        data[(here - 1) * size : here * size] = copy
    path.write_bytes(data)


def test_numbers_out_of_range_are_repaired(tmp_path: Path) -> None:
    out = NsysFile(tmp_path / "run.sqlite", "2025")
    out.kernel("gemm", MS, 2 * MS, 1)
    out.kernel("gemm", 2**63 - 1, -(2**63), -(2**63), device=-5, stream=2**62)
    out.call("cudaLaunchKernel", 1000, 2000, 1)
    out.range("unfinished", 5, None)
    out.range("called by a number that is none", 5, 6)
    out.execute(
        "UPDATE CUPTI_ACTIVITY_KIND_RUNTIME SET nameId = 'x', correlationId = 1e300, globalTid = globalTid",
        "UPDATE NVTX_EVENTS SET textId = -100",
        "INSERT INTO StringIds VALUES (-9223372036854775808, 'low')",
    )

    trace = read_trace(out.write())

    assert trace.repaired == {NO_START: 1, UNFINISHED: 1}
    assert (trace.events.end_ns - trace.events.start_ns).tolist() == [MS, 1000, 1]
    assert trace.events.correlation.tolist() == [1, -1, -1]


def test_a_report_is_exported_where_nsys_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    report, tools = tmp_path / "run.nsys-rep", tmp_path / "bin"
    report.write_bytes(training(tmp_path / "x", "2025").read_bytes())
    with pytest.raises(TraceError, match=r"run `nsys export --type=sqlite .*run\.nsys-rep`, and give"):
        read_trace(report)
    tools.mkdir()
    nsys = tools / "nsys"
    nsys.write_text(
        '#!/bin/sh\nfor word; do case $word in --output=*) to=${word#--output=};; esac; done\ncp "$word" "$to"\n'
    )
    nsys.chmod(0o755)
    monkeypatch.setenv("PATH", str(tools), prepend=os.pathsep)

    with pytest.raises(TraceError, match="run `nsys export"):
        analyzed(tmp_path)  # of a folder nothing is exported: it may be anybody's
    run = analyzed(report)
    assert [rank.traces for rank in run.ranks] == [["run.sqlite"]]
    assert run.ranks[0].steps
    assert [rank.traces for rank in analyzed(tmp_path).ranks] == [["run.sqlite"]]


@pytest.mark.parametrize("beside", ["nothing", "a link"])
def test_an_export_that_fails_or_would_go_through_a_link_leaves_all_as_it_is(
    beside: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    report, victim, tools = tmp_path / "run.nsys-rep", tmp_path / "victim", tmp_path / "bin"
    report.write_bytes(b"report")
    victim.write_bytes(b"mine")
    os.utime(victim, (0, 0))
    if beside == "a link":
        (tmp_path / "run.sqlite").symlink_to(victim)
    tools.mkdir()
    (tools / "nsys").write_text(
        "#!/bin/sh\nfor word; do case $word in --output=*) to=${word#--output=};; esac; done\n"
        'echo half > "$to"\nexit 1\n'
    )
    (tools / "nsys").chmod(0o755)
    monkeypatch.setenv("PATH", str(tools), prepend=os.pathsep)
    with pytest.raises(TraceError, match="run `nsys export"):
        analyzed(report)
    assert victim.read_bytes() == b"mine"
    assert not (tmp_path / "run.sqlite").exists() or beside == "a link"
    assert not list(tmp_path.glob(".*"))


def test_databases_and_reports_of_other_programs_beside_traces_are_none_of_them(tmp_path: Path) -> None:
    trace = Path(__file__).parents[3] / "traces" / "sample-hdf5" / "rank0.json.gz"
    (tmp_path / "rank0.json.gz").write_bytes(trace.read_bytes())
    (tmp_path / "mlflow.sqlite").touch()
    (tmp_path / "other.nsys-rep").touch()
    run = perfkit.analyze(tmp_path, cache=False, strict=True).runs[0]
    assert [rank.traces for rank in run.ranks] == [["rank0.json.gz"]]
