"""What NCCL's logs say, on logs whose truth is known; each claim also where it must not be made."""

from pathlib import Path
from typing import Any

import pytest

import perfkit
from perfkit.__main__ import main
from perfkit.errors import TraceError, UsageError
from perfkit.pipeline.other_files import load_comm_logs
from perfkit.records.common import Observation
from perfkit.records.per_run.comm_logs import NcclLogs
from perfkit.trace.comm_logs import facts as facts_module
from perfkit.trace.comm_logs.facts import NcclLogReader
from tests.support.nccl_logs import MadeLog, ring_pairs
from tests.support.traces.trace_builder import TraceBuilder

TWO_BY_TWO = ("a", "a", "b", "b")
SOCKET = "NET/Socket/0"


def read(tmp_path: Path, *texts: str) -> tuple[NcclLogs, list[Observation]]:
    folder = tmp_path / "logs"
    folder.mkdir()
    for number, text in enumerate(texts):
        (folder / f"nccl.{number}").write_text(text)
    found = load_comm_logs([folder])
    assert found.nccl is not None
    return found.nccl, found.nccl_findings


def found_of(read_logs: tuple[NcclLogs, list[Observation]], code: str) -> list[dict[str, Any]]:
    return [fact.values for fact in read_logs[1] if fact.code == code]


def ranks_of(pairs: list[list[tuple[int, int, str]]]) -> list[list[int]]:
    return [[rank for rank, _, _ in pair] for pair in pairs]


def rows(logs: NcclLogs) -> set[tuple[str, str, int, int, int]]:
    return {(row.transport, row.place, row.pairs, row.connections, row.gpu_direct) for row in logs.transports}


def test_a_healthy_log_is_summarized_without_findings(tmp_path: Path) -> None:
    logs, findings = read(tmp_path, MadeLog(TWO_BY_TWO).text())
    assert findings == []
    assert (logs.ranks, logs.processes, logs.warning_count, logs.left_out, logs.garbled_lines) == (4, 4, 0, 0, 0)
    assert [(host.host, host.ranks) for host in logs.hosts] == [("a", [0, 1]), ("b", [2, 3])]
    # A ring 0 → 1 → 2 → 3 → 0 with two channels; both ends log a connection over the network.
    assert rows(logs) == {("P2P/CUMEM", "within hosts", 2, 4, 0), ("NET/IB", "between hosts", 2, 4, 4)}
    assert {(one.name, one.value, one.processes) for one in logs.versions} == {
        ("NCCL", "2.21.5+cuda12.4", 4),
        ("CUDA driver", "12.2", 4),
        ("network", "IB", 4),
    }
    assert [(one.name, one.value) for one in logs.networks] == [("IB", "mlx5_0 (IB), mlx5_1 (RoCE)")]
    [channels] = logs.channels
    assert (channels.ranks, channels.communicators, channels.rings, channels.trees) == (4, 1, 2, 2)
    assert (channels.collective_channels, channels.nvls_channels, channels.p2p_channels) == (2, 0, 8)


def test_one_file_and_one_per_rank_say_the_same(tmp_path: Path) -> None:
    made = MadeLog(TWO_BY_TWO)
    together, _ = read(tmp_path, made.text())
    (tmp_path / "other").mkdir()
    apart, findings = read(tmp_path / "other", *("\r\n".join(made.rank(rank)) for rank in range(4)))
    assert findings == []
    assert (apart.transports, apart.hosts, apart.versions, apart.channels) == (
        together.transports,
        together.hosts,
        together.versions,
        together.channels,
    )


@pytest.mark.parametrize("comm_id", ["0x1", None])
def test_a_pair_over_sockets_among_others_is_named(tmp_path: Path, comm_id: str | None) -> None:
    made = MadeLog(TWO_BY_TWO, comm_id=comm_id, transports={frozenset((1, 2)): SOCKET})
    found = read(tmp_path, made.text())
    [values] = found_of(found, "nccl_some_sockets")
    assert (ranks_of(values["slow"]), values["others"], values["transports"]) == ([[1, 2]], 1, ["NET/IB"])
    assert [host for _, _, host in values["slow"][0]] == ["a", "b"]
    assert {finding.code for finding in found[1]} == {"nccl_some_sockets"}


def test_only_sockets_are_told_apart_from_some(tmp_path: Path) -> None:
    made = MadeLog(TWO_BY_TWO, transports={frozenset((1, 2)): SOCKET, frozenset((0, 3)): SOCKET})
    no_device = made.info(0, "NET/IB : No device found.")
    found = read(tmp_path, made.text() + no_device)
    [values] = found_of(found, "nccl_only_sockets")
    assert (ranks_of(values["slow"]), values["why"]) == ([[0, 3], [1, 2]], "no_infiniband")
    assert found_of(found, "nccl_some_sockets") == []


def test_sockets_are_not_all_if_connections_with_unknown_ends_use_another_network(tmp_path: Path) -> None:
    made = MadeLog(("a", "b", "c"), transports={frozenset((0, 1)): SOCKET})
    # The log of rank 2 is not there: who is at the other end of InfiniBand is unknown.
    found = read(tmp_path, *("\n".join(made.rank(rank)) for rank in (0, 1)))
    [fact] = found[1]
    assert (fact.code, fact.case, fact.values["transports"]) == ("nccl_some_sockets", "unknown_ends", ["NET/IB"])


def test_sockets_within_a_host_or_to_an_unknown_end_are_no_finding(tmp_path: Path) -> None:
    within = MadeLog(("a", "a"), transports={frozenset((0, 1)): SOCKET})
    assert read(tmp_path, within.text())[1] == []
    (tmp_path / "other").mkdir()
    alone = MadeLog(("a", "b"), transports={frozenset((0, 1)): SOCKET})
    logs, findings = read(tmp_path / "other", "\n".join(alone.rank(0)))
    assert findings == []
    assert {row.place for row in logs.transports} == {"unknown"}


def test_shared_memory_is_reported_where_others_of_the_host_use_p2p(tmp_path: Path) -> None:
    hosts = ("a", "a", "a", "a")
    made = MadeLog(hosts, transports={frozenset((1, 2)): "SHM/direct/direct"})
    [values] = found_of(read(tmp_path, made.text()), "nccl_shared_memory")
    assert (values["host"], ranks_of(values["shared"]), values["direct"]) == ("a", [[1, 2]], 3)


@pytest.mark.parametrize("hosts", [("a", "a", "a"), ("a", "a", "b", "b")])
def test_shared_memory_alone_is_no_finding(tmp_path: Path, hosts: tuple[str, ...]) -> None:
    within = [pair for pair in ring_pairs(len(hosts)) if len({hosts[rank] for rank in pair}) == 1]
    shared = within if len(set(hosts)) == 1 else [frozenset((0, 1))]  # on host b they use P2P
    made = MadeLog(hosts, transports=dict.fromkeys(shared, "SHM/direct/direct"))
    assert read(tmp_path, made.text())[1] == []


def test_a_pair_that_uses_p2p_in_another_communicator_is_no_finding(tmp_path: Path) -> None:
    made = MadeLog(("a", "a", "a"), transports={frozenset((1, 2)): "SHM/direct/direct"})
    late = made.info(1, "Channel 00/1 : 1[1] -> 2[2] via P2P/CUMEM")
    logs, findings = read(tmp_path, made.text() + late)
    assert findings == []
    assert {row.transport for row in logs.transports} == {"P2P/CUMEM", "SHM/direct"}


@pytest.mark.parametrize("name", ["NCCL_IB_DISABLE", "NCCL_P2P_DISABLE", "NCCL_SHM_DISABLE"])
def test_what_is_switched_off_is_named(tmp_path: Path, name: str) -> None:
    found = read(tmp_path, MadeLog(TWO_BY_TWO, variables=(f"{name} set by environment to 1.",)).text())
    [finding] = found[1]
    assert (finding.code, finding.severity) == ("nccl_disabled", "warning")
    assert finding.values == {"name": name, "value": "1", "known": 4, "processes": 4, "one_host": False}
    assert [(one.name, one.value, one.processes) for one in found[0].variables] == [(name, "1", 4)]


@pytest.mark.parametrize(
    "line", ["NCCL_IB_DISABLE set by environment to 0.", "NCCL_IB_HCA set to mlx5_0", "NCCL_P2P_LEVEL set to NVL"]
)
def test_other_variables_are_listed_without_a_finding(tmp_path: Path, line: str) -> None:
    logs, findings = read(tmp_path, MadeLog(TWO_BY_TWO, variables=(line,)).text())
    assert findings == []
    assert len(logs.variables) == 1


def test_infiniband_switched_off_on_one_host_is_only_a_remark(tmp_path: Path) -> None:
    found = read(tmp_path, MadeLog(("a", "a"), variables=("NCCL_IB_DISABLE set by environment to 1.",)).text())
    [finding] = found[1]
    assert (finding.code, finding.severity) == ("nccl_disabled", "info")
    assert finding.values["one_host"]


def test_versions_of_one_communicator_are_compared_not_those_of_other_jobs(tmp_path: Path) -> None:
    made = MadeLog(("a", "b", "b"), versions={2: "2.19.3+cuda12.2"})
    [values] = found_of(read(tmp_path, made.text()), "nccl_versions_differ")
    assert values == {"versions": [("NCCL 2.19.3+cuda12.2", [2]), ("NCCL 2.21.5+cuda12.4", [0, 1])]}
    (tmp_path / "other").mkdir()
    jobs = MadeLog(("a", "b")).text(), MadeLog(("c", "d"), comm_id="0x2", version="2.19.3").text()
    logs, findings = read(tmp_path / "other", *jobs)
    assert findings == []
    assert {one.value for one in logs.versions if one.name == "NCCL"} == {"2.21.5+cuda12.4", "2.19.3"}


def test_warnings_are_counted_and_the_first_is_quoted(tmp_path: Path) -> None:
    made = MadeLog(("a", "b"))
    warned = [
        made.warn(1, "socketStartConnect: Connect to 10.0.0.2<45763> failed"),
        made.warn(0, "Timeout"),
        made.warn(0, "Timeout"),
    ]
    found = read(tmp_path, made.text() + "\n".join(warned))
    first = "socketStartConnect: Connect to 10.0.0.2<45763> failed"
    assert found_of(found, "nccl_warnings") == [{"count": 3, "first": first, "rank": 1}]
    assert [(one.text, one.count, one.rank) for one in found[0].warnings[:1]] == [("Timeout", 2, 0)]


def test_time_outs_are_reported_and_aborts_only_counted(tmp_path: Path) -> None:
    made = MadeLog(("a", "b"))
    abort = made.info(0, "comm 0x550000 rank 0 nranks 2 cudaDev 0 busId 17000 - Abort COMPLETE")
    logs, findings = read(tmp_path, made.text() + abort)
    assert findings == []
    assert logs.aborts == 1
    (tmp_path / "other").mkdir()
    watchdog = (
        "[rank1]:[E ProcessGroupNCCL.cpp:616] [Rank 1] Watchdog caught collective operation timeout: "
        "WorkNCCL(SeqNum=7, OpType=ALLREDUCE) ran for 600012 milliseconds before timing out.\n"
    )
    found = read(tmp_path / "other", made.text() + watchdog * 2)
    [values] = found_of(found, "nccl_timeout")
    assert values["first"].startswith("WorkNCCL(SeqNum=7")
    assert found[0].timeouts == 2


def test_choices_are_counted_by_size(tmp_path: Path) -> None:
    made = MadeLog(("a", "b"))
    lines = [
        made.info(0, f"AllReduce: {size} Bytes -> Algo RING proto LL channel{{Lo..Hi}}={{0..1}}") for size in (8, 4096)
    ]
    logs, _ = read(tmp_path, made.text() + "\n".join(lines))
    [choice] = logs.choices
    assert (choice.operator, choice.algorithm, choice.protocol) == ("AllReduce", "Ring", "LL")
    assert (choice.count, choice.least_bytes, choice.most_bytes) == (2, 8, 4096)


def test_ranks_of_groups_become_those_of_the_whole_job(tmp_path: Path) -> None:
    """Ranks 1 and 3 form a group, in which they are 0 and 1."""
    world = MadeLog(TWO_BY_TWO)
    lines = [world.text()]
    for group_rank, rank in enumerate((1, 3)):
        device = world.device(rank)
        member = f"comm 0x9{rank} rank {group_rank} nranks 2 cudaDev {device} nvmlDev {device} busId 7 commId 0x77"
        connection = f"Channel 00/0 : 0[1] -> 1[1] [{'receive' if group_rank else 'send'}] via {SOCKET}"
        texts = (f"{member} - Init START", connection, f"{member} - Init COMPLETE")
        lines += [world.info(rank, text) + "\n" for text in texts]
    [values] = found_of(read(tmp_path, "".join(lines)), "nccl_some_sockets")
    assert ranks_of(values["slow"]) == [[1, 3]]


def test_a_later_connection_counts_only_if_its_communicator_is_certain(tmp_path: Path) -> None:
    """After two initialisations, rank 0 of both connects to rank 1, which is rank 1 or rank 2 of the job."""
    world = MadeLog(("a", "a", "b"))
    lines = [world.text()]
    for group_rank, rank in enumerate((0, 2)):
        member = f"comm 0x9{rank} rank {group_rank} nranks 2 cudaDev 0 nvmlDev {7 * group_rank} busId 7 commId 0x77"
        lines += [world.info(rank, f"{member} - Init {end}") + "\n" for end in ("START", "COMPLETE")]
    ambiguous = world.info(0, f"Channel 00/0 : 0 -> 1 [send] via {SOCKET}") + "\n"
    logs, findings = read(tmp_path, "".join(lines) + ambiguous)
    assert findings == []
    assert ("NET/Socket", "unknown", 1, 1, 0) in rows(logs)
    (tmp_path / "other").mkdir()
    by_device = world.info(0, f"Channel 00/0 : 0[0] -> 1[7] [send] via {SOCKET}") + "\n"
    logs, findings = read(tmp_path / "other", "".join(lines) + by_device)
    assert ("NET/Socket", "between hosts", 1, 1, 0) in rows(logs)
    assert [finding.code for finding in findings] == ["nccl_some_sockets"]


def test_a_communicator_in_which_the_process_has_another_rank_is_not_the_one(tmp_path: Path) -> None:
    """Rank 0 has rank 1 in a group, so a later connection of rank 0 is not the group's."""
    world = MadeLog(("a", "a", "b"))
    lines = [world.text()]
    for group_rank, rank in enumerate((2, 0)):
        member = f"comm 0x9{rank} rank {group_rank} nranks 2 cudaDev 0 commId 0x77"
        lines += [world.info(rank, f"{member} - Init {end}") + "\n" for end in ("START", "COMPLETE")]
    late = world.info(0, "Channel 00/1 : 0 -> 1 via P2P/late")
    logs, _ = read(tmp_path, "".join(lines) + late)
    assert ("P2P/late", "within hosts", 1, 1, 0) in rows(logs)


@pytest.mark.parametrize("comm_id", ["0x1", None])
def test_rccls_pointers_tell_the_communicator(tmp_path: Path, comm_id: str | None) -> None:
    """Both communicators have a connection from rank 0 to rank 1, on devices of the same number."""
    world = MadeLog(("a", "b", "c"), comm_id=comm_id)
    lines = [world.text()]
    name = " commId 0x77" if comm_id else ""
    for group_rank, rank in enumerate((0, 2)):
        member = f"comm 0x9{rank} rank {group_rank} nranks 2 cudaDev 0 busId {world.device(rank) + 1}7000{name}"
        lines += [world.info(rank, f"{member} - Init COMPLETE") + "\n"]
    for pointer in ("0x550000", "0x90"):
        lines.append(
            world.info(0, f"Channel 00/0 : 0 -> 1 [send] via NET/X{pointer}/0 comm {pointer} nRanks 02") + "\n"
        )
    logs, _ = read(tmp_path, "".join(lines))
    assert {("NET/X0x550000", "between hosts", 1, 1, 0), ("NET/X0x90", "between hosts", 1, 1, 0)} <= rows(logs)


def test_groups_that_cannot_be_told_apart_are_left_unknown(tmp_path: Path) -> None:
    first, second = MadeLog(("a", "b"), comm_id=None), MadeLog(("c", "d"), comm_id=None)
    logs, findings = read(tmp_path, first.text(), second.text().replace("NET/IB", "NET/Socket"))
    assert findings == []
    assert {row.place for row in logs.transports} == {"unknown"}
    assert logs.hosts == []


def test_rccl_and_versions_without_a_process_are_read(tmp_path: Path) -> None:
    made = MadeLog(("a", "b"))
    text = made.text().replace("NCCL version 2.21.5+cuda12.4", "Using rocm")
    text += "[1,0]<stdout>:RCCL version : 2.21.5-HEAD:eef7b29\nHIP version  : 6.3.42131-fa1d09cbd\n"
    logs, findings = read(tmp_path, text)
    assert findings == []
    named = {(one.name, one.value, one.processes) for one in logs.versions}
    assert ("RCCL", "2.21.5-HEAD:eef7b29", 0) in named
    assert ("HIP", "6.3.42131-fa1d09cbd", 0) in named


def test_binary_junk_and_other_output_change_nothing(tmp_path: Path) -> None:
    made = MadeLog(TWO_BY_TWO)
    clean, _ = read(tmp_path, made.text())
    (tmp_path / "other").mkdir()
    noisy = "\n".join(
        f"\x00\x01\ufffd junk {'y' * 20000}\nstep 3 loss 0.1\n 10%|#\r\x1b[32m{line}\x1b[0m\r"
        for line in made.text().splitlines()
    )
    glued = made.init(0, "COMPLETE")[:-20] + made.init(1, "COMPLETE")
    logs, findings = read(tmp_path / "other", f"{noisy}\n{glued}\n")
    assert findings == []
    assert logs.garbled_lines == 1
    assert (logs.transports, logs.hosts, logs.channels) == (clean.transports, clean.hosts, clean.channels)


def test_what_is_kept_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(facts_module, "MOST_CONNECTIONS", 50)
    monkeypatch.setattr(facts_module, "MOST_MEMBERS", 50)
    reader = NcclLogReader()
    for number in range(3000):
        head = f"h{number}:{number}:{number} [0]"
        reader.add(f"{head} NCCL INFO Channel 00/0 : {number}[0] -> 1[0] via P2P/X{number}".encode())
        reader.add(
            f"{head} NCCL INFO comm 0x{number:x} rank 0 nranks 2 cudaDev 0 commId {number} - Init START".encode()
        )
        reader.add(f"{head} NCCL INFO Trees [0] 1/-1/-1->0->-1".encode())
        reader.add(f"{head} NCCL INFO NCCL_V{number} set by environment to {number}".encode())
        reader.add(f"{head} a.cc:{number} NCCL WARN warned".encode())
    facts = reader.facts
    sizes = (len(facts.connections), len(facts.communicators), len(facts.processes), len(facts.variables))
    assert sizes == (50, 50, 50, 1000)
    assert len(facts.warnings) == 1000
    assert facts.warning_count == 3000
    assert facts.left_out == 2950 + 2950 + 2000


def test_processes_of_settings_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(facts_module, "MOST_NOTES", 20)
    reader = NcclLogReader()
    for number in range(100):
        reader.add(f"h{number}:1:1 [0] NCCL INFO NCCL_NET set by environment to IB".encode())
    assert len(reader.facts.variables["NCCL_NET", "IB"]) == 20
    assert reader.facts.left_out == 80


def write_run(folder: Path, world_size: int = 2) -> Path:
    folder.mkdir()
    for rank in range(world_size):
        builder = TraceBuilder(rank=rank, world_size=world_size, backend="nccl")
        builder.step(0, 0, 100).op("aten::mm", 0, 50).write(folder / f"rank{rank}.json")
    return folder


def test_the_report_shows_logs_given_and_those_of_the_runs_folder(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = write_run(tmp_path / "run")
    made = MadeLog(("a", "b"), transports={frozenset((0, 1)): SOCKET})
    log = tmp_path / "job.out"
    log.write_text(made.text() + made.warn(0, "\x9b2J<b>\u202e") + "\n")
    assert main(["analyze", str(run), "--comm-log", str(log), "--section", "comm-logs", "--no-cache"]) == 0
    shown = capsys.readouterr().out
    for part in ("NET/Socket", "between hosts", "job.out", "2.21.5+cuda12.4", "a: 0; b: 1", "\\x9b2J"):
        assert part in shown
    assert "\x9b" not in shown
    assert "\u202e" not in shown

    assert perfkit.analyze(run, cache=False).runs[0].nccl_logs is None
    for rank in range(2):
        (run / f"rank{rank}.nccl.log").write_text("\n".join(made.rank(rank)))
    [own] = perfkit.analyze(run, cache=False).runs
    assert own.nccl_logs is not None
    assert own.nccl_logs.files == ["rank0.nccl.log", "rank1.nccl.log"]
    assert "nccl_only_sockets" in {finding.code for finding in own.findings}
    assert "nccl_ranks_differ" not in {finding.code for finding in own.findings}


def test_logs_of_other_ranks_than_the_runs_are_reported(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run")
    (run / "nccl.a.log").write_text(MadeLog(TWO_BY_TWO).text())
    [report] = perfkit.analyze(run, cache=False).runs
    [finding] = [finding for finding in report.findings if finding.code == "nccl_ranks_differ"]
    assert finding.message.startswith("the largest communicator in the NCCL logs has 4 ranks, the run 2")


def test_what_cannot_be_used_is_refused_by_name(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run")
    empty = tmp_path / "empty.log"
    empty.write_text("step 1 loss 2.0\n")
    with pytest.raises(TraceError, match=r"empty.log: no line of NCCL.s or oneCCL.s log here"):
        perfkit.analyze(run, comm_log=[empty], cache=False)
    with pytest.raises(TraceError, match=r"missing.log: cannot be read"):
        perfkit.analyze(run, comm_log=[tmp_path / "missing.log"], cache=False)
    write_run(tmp_path / "run2")
    log = tmp_path / "x.log"
    log.write_text(MadeLog(("a", "b")).text())
    with pytest.raises(UsageError, match=r"--comm-log x.log belongs to one run; PATH has 2"):
        perfkit.analyze(run, tmp_path / "run2", comm_log=[log], cache=False)
    # A log in the run's own folder that cannot be read does not lose the run.
    (run / "nccl.log").mkdir()
    assert perfkit.analyze(run, cache=False).runs[0].ranks


def test_large_logs_of_a_folder_are_read_only_if_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("perfkit.pipeline.other_files._MOST_UNASKED_BYTES", 100)
    run = write_run(tmp_path / "run")
    (run / "nccl.log").write_text(MadeLog(("a", "b")).text())
    [report] = perfkit.analyze(run, cache=False).runs
    assert report.nccl_logs is None
    assert "nccl_log_unread" in {finding.code for finding in report.findings}
    assert perfkit.analyze(run, comm_log=str(run), cache=False).runs[0].nccl_logs is not None
