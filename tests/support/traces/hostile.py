"""Two runs in which every string, of the traces and of run.json, attempts an injection."""

from pathlib import Path
from typing import Any, Final

from perfkit.records.manifest import Compiled, Failure, Injection, RankRecord, RunManifest, Throughput, TraceFile, World
from perfkit.storage.run_folder import write_manifest
from tests.support.traces.trace_builder import TraceBuilder

MARKUP: Final = "</script></style></title></textarea></td><img src=x onerror=alert(1)><script>alert(2)</script>"
TERMINAL: Final = "\x1b]0;owned\x07\x1b[2J\x9b31m\r\x08\u202e\u2066\u200b\x00"
MARKDOWN: Final = "](javascript:alert(3))![i](http://x.example/i.png)`c`|d\n\n# h\n<!--"
TEMPLATE: Final = "{{ 7*7 }}{% raw %}${7*7}%s{0}&quot;]]>\"'\\"
FORMULAS: Final = ("=cmd|' /C calc'!A0", "+1", "-1", "@SUM(A1)", "\t=1", "\r=1", " =1", "＝1")


def hostile(start: str = FORMULAS[0]) -> str:
    """Return a text with every injection at once."""
    return start + MARKUP + TERMINAL + MARKDOWN + TEMPLATE


def harmless(start: str = "") -> str:
    """Return a harmless text."""
    return "harmless"


def make_runs(root: Path, text: Any = hostile, runs: int = 2) -> list[Path]:
    """Write runs of two ranks each, on a device, with `text()` for every string; return their folders."""
    return [_run(root / f"{number}{_file_name(text)}", text, number) for number in range(runs)]


def _file_name(text: Any) -> str:
    """Return as much of the text as a file name may have."""
    label = str(text())
    return "".join(character for character in label[:20] + label[-80:] + label[20:60] if character not in "/\0")


def _run(folder: Path, text: Any, number: int) -> Path:
    folder.mkdir(parents=True)
    write_manifest(folder, _manifest(text, number))
    for rank in range(2):
        _trace(rank, text, number).write(folder / f"{_file_name(text)}rank{rank}.json.gz")
    return folder


def _manifest(text: Any, number: int) -> RunManifest:
    config = {"preset": text(), "read": text("+"), "num_workers": text("-"), text("@"): [text()], "trace_dir": text()}
    return RunManifest(
        run=text(),
        state="completed",
        failure=Failure(rank=0, message=text()),
        workload=text(),
        source=text("@"),
        started_at=f"2026-01-0{number + 1}T00:00:00Z",
        config=config | ({text("-"): text()} if number else {}),
        versions={text(): text(), "torch": f"{number}{text()}"},
        commit=text("@"),
        backend=text(),
        device=text(),
        world=World(world_size=2, nodes=1, launcher=text(), local_world_sizes=[2]),
        compiled=Compiled(graphs=0, steps=[1]),
        injections=[Injection(phase="backward", delay_ns=1_000_000, rank=1)],
        step_kinds=["plain"] * 3,
        ranks=[_rank(rank, text) for rank in range(2)],
        throughput=Throughput(
            samples_per_s=1.0,
            tokens_per_s=None,
            flops_per_s=1e9,
            mfu=None,
            mfu_reason=text(),
            read_bytes_per_s=None,
            measured_on="plain",
            step_ns=1_000_000,
        ),
        unknown={text(): text()},
        files=[TraceFile(path=text(), rank=0, cycle=0, bytes=1, kind="trace")],
    )


def _rank(rank: int, text: Any) -> RankRecord:
    return RankRecord(
        rank=rank,
        local_rank=rank,
        node_rank=0,
        host=text(),
        device=text(),
        device_name=text(),
        threads=64,
        node_cores=1,
        step_wall_ns=[1_000_000] * 3,
        load_ns=[1000] * 3,
        loss=[1.0] * 3,
    )


def _trace(rank: int, text: Any, number: int) -> TraceBuilder:
    trace = TraceBuilder(rank, 2, backend=text(), host_name=text())
    trace.header(traceName=text(), schemaVersion=1, record_shapes=text())
    trace.event(text(), text(), 5, 5, pid=text(), tid=text(), args={text(): text()})
    for step in range(6):
        at, first = step * 1000, step * 20 + 1
        trace.step(step, at, 1000)
        trace.data_loading(at + 1, 50, name=f"enumerate(DataLoader)#{text()}")
        trace.annotation(text("@"), at + 2, 600).memory(at + 5, 4096, 64, kind=1, device=0)
        trace.op(text("+"), at + 60, 100).launch(first, at + 70, 5)
        trace.kernel(text(FORMULAS[step]), at + 200, 100 + 100 * number, first)
        shapes = {"Input Dims": [[2, 3], [3, 5], text()], "Input type": ["float", "float", text()], text(): text()}
        trace.op("aten::mm", at + 162, 4, args=shapes).launch(first + 2, at + 163, 1)
        trace.kernel(text(), at + 620, 30, first + 2)
        trace.op(text(), at + 167, 2, args=shapes).launch(first + 3, at + 168, 1).kernel(text(), at + 650, 30, first + 3)
        trace.record_param_comms(text(), at + 170, 20, group=text(), dtype=text("-"), group_description=text())
        trace.launch(first + 1, at + 175, 5).kernel(f"ncclDevKernel_{text()}", at + 500, 50 + rank, first + 1)
    return trace
