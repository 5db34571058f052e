"""What oneCCL's logs say, on logs made by hand in its format; each claim also where it must not be made."""

from pathlib import Path

import pytest

import perfkit
from perfkit.__main__ import main
from perfkit.records.run import RunReport
from perfkit.trace.comm_logs import facts, one_ccl
from tests.support.nccl_logs import MadeLog
from tests.support.traces.trace_builder import TraceBuilder

PCIE = "topology recognition shows PCIe connection between devices. If this is not correct, …"


def line(text: str, level: str = "INFO", process: int = 4711, *, bare: bool = False, before: str = "") -> str:
    """A line as oneCCL writes it: the process in parentheses, or as newer versions do."""
    number = str(process) if bare else f"({process:>5})"
    return f"{before}2026:05:12-10:31:07:{number} |CCL_{level}| {text}\n"


def made(provider: str = "tcp") -> str:
    return "".join(
        [
            "step 1 loss 2.0\n",
            line("value of CCL_ATL_TRANSPORT changed to be ofi (default:mpi)", "WARN", before="[0] "),
            line("value of CCL_ATL_TRANSPORT changed to be ofi (default:mpi)", "WARN", 4712, bare=True),
            line("value of CCL_OP_SYNC changed to be 1 (default:0)", "WARN", 4712),
            line("libfabric version: 1.21.0-made"),
            line(f"provider: {provider}"),
            line("  nic: { name eth0, state up, speed 1.25 GB/s }").replace("|   nic", "| nic"),
            line("library version: Gold-2021.99.1 2026-01-01T00:00:00Z (HEAD/made)"),
            line("CCL_WORKER_COUNT: 1"),
        ]
    )


def analyse(folder: Path, text: str, hosts: str = "ab") -> RunReport:
    (folder / "run").mkdir(parents=True)
    for rank, host in enumerate(hosts):
        builder = TraceBuilder(rank=rank, world_size=len(hosts), backend="xccl", host_name=host)
        builder.step(0, 0, 100).op("aten::mm", 0, 50).write(folder / "run" / f"rank{rank}.json")
    (folder / "job.out").write_text(text)
    (run,) = perfkit.analyze(folder / "run", comm_log=folder / "job.out", cache=False).runs
    return run


def findings(run: RunReport) -> dict[str, str]:
    return {one.code: one.message for one in run.findings if one.code.startswith(("one_ccl", "nccl"))}


def test_versions_providers_and_variables_are_read(tmp_path: Path) -> None:
    logs = analyse(tmp_path, made()).one_ccl_logs
    assert logs is not None
    assert (logs.files, logs.lines, logs.processes, logs.garbled_lines) == (["job.out"], 8, 2, 0)
    assert [(row.name, row.value) for row in logs.versions] == [
        ("libfabric", "1.21.0-made"),
        ("oneCCL", "Gold-2021.99.1"),
    ]
    assert [(row.name, row.value) for row in logs.providers] == [("network interface", "eth0"), ("provider", "tcp")]
    assert [(row.name, row.value, row.processes) for row in logs.variables] == [
        ("CCL_ATL_TRANSPORT", "ofi (default mpi)", 2),
        ("CCL_OP_SYNC", "1 (default 0)", 1),
    ]
    assert (logs.warnings, logs.errors) == ([], [])


@pytest.mark.parametrize(
    ("provider", "hosts", "slow"),
    [
        ("tcp", "ab", True),
        ("tcp;ofi_rxm", "ab", True),
        ("tcp", "aa", False),
        ("cxi", "ab", False),
        ("verbs;ofi_rxm", "ab", False),
    ],
)
def test_sockets_are_reported_only_between_hosts(tmp_path: Path, provider: str, hosts: str, slow: bool) -> None:
    found = findings(analyse(tmp_path, made(provider), hosts))
    assert ("one_ccl_sockets" in found) is slow
    assert set(found) <= {"one_ccl_sockets"}
    if slow:
        assert found["one_ccl_sockets"].endswith(f"libfabric's provider is {provider}; FI_PROVIDER chooses another")


def test_messages_are_counted_and_the_most_frequent_named(tmp_path: Path) -> None:
    other = "no membind support for NUMA node 0"
    text = (
        made("cxi") + 3 * line(PCIE, "WARN") + 2 * line(other, "WARN") + line("x.cpp:7 f: condition a failed", "ERROR")
    )
    found = findings(analyse(tmp_path, text))
    assert set(found) == {"one_ccl_pcie", "one_ccl_warnings", "one_ccl_errors"}
    assert found["one_ccl_warnings"] == f"oneCCL warned 2 times, most often: {other}"
    assert found["one_ccl_errors"] == "oneCCL logged an error, most often: x.cpp:7 f: condition a failed"


def test_lines_that_two_processes_wrote_are_skipped(tmp_path: Path) -> None:
    run = analyse(tmp_path, line("provider: cxi") + line("numa: 1").rstrip("\n") + line("provider: tcp"))
    assert run.one_ccl_logs is not None
    assert run.one_ccl_logs.garbled_lines == 1
    assert [row.value for row in run.one_ccl_logs.providers] == ["cxi"]


def test_one_file_may_have_lines_of_both_libraries(tmp_path: Path) -> None:
    run = analyse(tmp_path, made() + MadeLog(("a", "b")).text())
    assert run.one_ccl_logs is not None
    assert run.nccl_logs is not None
    only = analyse(tmp_path / "only", MadeLog(("a", "b")).text())
    assert only.one_ccl_logs is None


def test_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (one_ccl, facts):
        monkeypatch.setattr(module, "MOST_TEXTS", 3)
    reader = one_ccl.OneCclReader()
    for number in range(10):
        reader.add(line(f"warning {number}", "WARN").encode(), "x")
        reader.add(line(f"provider: p{number}").encode(), "x")
    assert (len(reader.facts.warnings), reader.facts.warning_count, len(reader.facts.providers)) == (3, 10, 3)
    assert reader.facts.left_out == 14


def test_tables_are_printed_escaped(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    analyse(tmp_path, made() + line("bad \x9b2J", "WARN"))
    run, log = str(tmp_path / "run"), str(tmp_path / "job.out")
    assert main(["analyze", run, "--comm-log", log, "--section", "comm-logs", "--no-cache"]) == 0
    shown = capsys.readouterr().out
    for part in ("oneCCL, by its logs", "9 lines of 2 processes", "ofi (default mpi)", "\\x9b2J"):
        assert part in shown
    assert "\x9b" not in shown
