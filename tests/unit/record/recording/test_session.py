"""The session in one process: which steps it records, what it delays, what it reports after a failure."""

import os
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import FunctionType

import pytest
import torch

import perfkit
from perfkit.errors import RunError
from perfkit.record.distributed.rank_group import ProcessRankGroup
from perfkit.record.recording import cycle_recorder
from perfkit.record.recording.manifest_writer import versions
from perfkit.record.recording.recording import Recording
from perfkit.records.manifest import Injection
from perfkit.records.rank import MemoryUse
from perfkit.storage.run_folder import read_manifest

CPU = torch.device("cpu")


def test_a_loop_that_ends_within_its_active_steps_records_no_step_that_never_was(tmp_path: Path) -> None:
    with perfkit.profile(tmp_path / "mine", schedule="wait=0,warmup=1,active=5") as prof:
        for _ in range(3):
            torch.ones(8) @ torch.ones(8)
            prof.step()
        torch.ones(8) @ torch.ones(8)  # after the last step, and in none
    (run,) = perfkit.analyze(tmp_path).runs
    (rank,) = run.ranks
    assert [step.step for step in rank.steps] == [1, 2]
    assert sum(operator.count for operator in rank.operators if operator.name == "aten::dot") == 2


@pytest.mark.parametrize(
    ("steps", "kept"),
    [(1, []), (2, [1]), (5, [2, 3, 4]), (9, [*range(4, 9)]), (12, [*range(6, 12)]), (20, [*range(8, 18)])],
)
def test_the_default_schedule_leaves_a_trace_of_short_loops_too(steps: int, kept: list[int], tmp_path: Path) -> None:
    with perfkit.profile(tmp_path / "mine") as prof:
        for _ in range(steps):
            torch.ones(8) @ torch.ones(8)
            prof.step()
    (run,) = perfkit.analyze(tmp_path).runs
    assert [step.step for rank in run.ranks for step in rank.steps] == kept
    assert sum(row.count for rank in run.ranks for row in rank.operators if row.name == "aten::dot") == len(kept)
    manifest = read_manifest(tmp_path / "mine")
    assert [step for step, kind in enumerate(manifest.step_kinds) if kind == "active"] == kept
    assert (manifest.ranks[0].writing_ns > 0) == bool(kept)


def memory_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def grows_in_child(operators: int) -> int:
    """Return by how many MB a forked process grows while it runs operators."""
    child = os.fork()
    if child == 0:
        one = torch.ones(1)
        for operator in range(operators):
            one + one
            if operator == operators // 4:  # the first ones bring in libraries
                before = memory_bytes()
        os._exit(min(255, (memory_bytes() - before) // 1_000_000))
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="the size of a process is read from /proc")
def test_a_process_that_is_forked_in_a_recorded_step_records_nothing(tmp_path: Path) -> None:
    with perfkit.profile(tmp_path / "mine", schedule="wait=0,warmup=1,active=2") as prof:
        for _ in range(2):
            torch.ones(8) @ torch.ones(8)
            prof.step()
        assert prof.recording
        assert grows_in_child(400_000) < 30  # some 80 if each operator is recorded
        torch.ones(8) @ torch.ones(8)
        prof.step()
    (rank,) = perfkit.analyze(tmp_path).runs[0].ranks
    assert sum(operator.count for operator in rank.operators if operator.name == "aten::dot") == 2


@pytest.mark.parametrize("elsewhere", [1, 2])
def test_a_step_that_ends_in_another_thread_is_an_error_and_no_crash(elsewhere: int, tmp_path: Path) -> None:
    errors: list[str] = []

    def end_step() -> None:
        try:
            prof.step()
        except RunError as error:
            errors.append(str(error))

    with perfkit.profile(tmp_path / "mine", schedule="wait=0,warmup=1,active=2") as prof:
        for step in range(4):
            if step == elsewhere:
                thread = threading.Thread(target=end_step)
                thread.start()
                thread.join()
            else:
                prof.step()
    assert errors == ["a step ended in another thread than those before, where torch's profiler cannot be stopped"]


@pytest.mark.parametrize(
    ("first_elsewhere", "said"), [(3, "recorded; to see"), (2, "nothing was recorded: a step ended")]
)
def test_a_loop_that_goes_on_in_another_thread_is_recorded_only_if_a_trace_is_left(
    first_elsewhere: int, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with (
        perfkit.profile(tmp_path / "mine", schedule="wait=0,warmup=1,active=2") as prof,
        ThreadPoolExecutor(1) as pool,
    ):
        for step in range(5):
            if step < first_elsewhere:
                prof.step()
            else:
                pool.submit(prof.step).exception()  # which nobody looks at
    assert said in capsys.readouterr().err
    assert (tmp_path / "mine" / "rank0.json.gz").exists() == (first_elsewhere == 3)


def test_a_thread_that_ends_while_it_is_recorded_leaves_its_steps(tmp_path: Path) -> None:
    profiled = perfkit.profile(tmp_path / "mine", schedule="wait=0,warmup=1,active=5")

    def train() -> None:
        prof = profiled.__enter__()
        for _ in range(3):
            torch.ones(8) @ torch.ones(8)
            prof.step()

    thread = threading.Thread(target=train)
    thread.start()
    thread.join()
    profiled.__exit__(None, None, None)
    (run,) = perfkit.analyze(tmp_path).runs
    assert [[step.step for step in rank.steps] for rank in run.ranks] == [[1, 2]]


def test_a_large_trace_gets_no_table_of_operators(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def record(name: str) -> set[str]:
        with perfkit.profile(tmp_path / name, schedule="wait=0,warmup=1,active=1") as prof:
            for _ in range(2):
                torch.ones(8) @ torch.ones(8)
                prof.step()
        return {path.name for path in (tmp_path / name).iterdir()}

    assert record("small") == {"run.json", "rank0.json.gz", "rank0.key_averages.txt"}
    monkeypatch.setattr(cycle_recorder, "MOST_TABLE_BYTES", 1000)
    assert record("large") == {"run.json", "rank0.json.gz"}


def test_names_that_torch_cannot_read_cost_the_table_of_operators_only(tmp_path: Path) -> None:
    others: list[bytes] = []

    def made() -> None:
        torch.empty(10)

    with perfkit.profile(tmp_path / "mine", schedule="wait=0,warmup=0,active=1", detail="why") as prof:
        for number in range(500):
            name = f"made_{number}_" + "x" * (number % 100)
            code = made.__code__.replace(co_name=name, co_filename=f"{name}.py")
            FunctionType(code, globals())()
        others += [b"\xb0" * size for size in range(60, 300) for _ in range(100)]  # where the names have been
        prof.step()
    assert {"run.json", "rank0.json.gz"} <= {path.name for path in prof.folder.iterdir()}
    (rank,) = perfkit.analyze(prof.folder).runs[0].ranks
    assert sum(operator.count for operator in rank.operators if operator.name == "aten::empty") >= 500


def test_memory_is_recorded_where_it_is_asked_for(tmp_path: Path) -> None:
    def record(options: perfkit.ProfilerOptions | None) -> list[MemoryUse]:
        kept = []
        with perfkit.profile(tmp_path / "mine", schedule="wait=0,warmup=1,active=2", options=options) as prof:
            for step in range(4):
                with prof.phase("forward"):
                    torch.empty(2_000_000, dtype=torch.uint8)
                kept.append(torch.empty(1_000_000 * step, dtype=torch.uint8))
                prof.step()
        return perfkit.analyze(prof.folder).runs[0].ranks[0].memory

    (use,) = record(perfkit.ProfilerOptions(profile_memory=True))
    assert use.device == "CPU"
    # What a step leaves is there in the next. The little that is on top is the profiler's own steps' and annotations'.
    assert [(peak.step, peak.allocated_bytes // 1_000_000) for peak in use.steps] == [(1, 2), (2, 3)]
    assert (use.peak.step, use.phase) == (2, "perfkit.forward")
    assert max(use.curve.allocated_bytes) == use.peak.allocated_bytes
    assert record(None) == []


def test_a_delay_is_injected_once_per_step_even_across_epochs(monkeypatch: pytest.MonkeyPatch) -> None:
    slept_s = []

    def sleep(seconds: float, sleep: Callable[[float], None] = time.sleep) -> None:
        slept_s.append(seconds)
        sleep(seconds)

    monkeypatch.setattr(time, "sleep", sleep)
    delay = Injection(phase="data_loading", delay_ns=40_000_000)
    session = Recording(ProcessRankGroup(CPU), CPU, Path(), None, injections=iter([delay]))
    session.begin()
    for _ in range(3):
        for _ in session.batches([1, 2]):
            session.step()
    assert slept_s == [0.04] * 7  # the last one when there was no batch any more
    assert len(session.measurements().load_ns) == 6
    assert all(load >= 40e6 for load in session.measurements().load_ns)


def test_starting_and_ending_a_pass_is_no_load(monkeypatch: pytest.MonkeyPatch) -> None:
    now_ns = 0
    monkeypatch.setattr(time, "perf_counter_ns", lambda: now_ns)

    class Slow:
        def __iter__(self) -> Iterator[int]:
            nonlocal now_ns
            now_ns += 100
            return self._batches()

        def _batches(self) -> Iterator[int]:
            nonlocal now_ns
            for batch in range(2):
                now_ns += 3
                yield batch
            now_ns += 50

    session = Recording(ProcessRankGroup(CPU), CPU, Path(), None)
    session.begin()
    waited_ns = []
    for _ in range(2):
        for _ in session.batches(Slow()):
            session.step()
            waited_ns.append(session.last_load_ns)
    assert session.measurements().load_ns == [3, 3, 3, 3]
    assert waited_ns == [103, 3, 153, 3]
    assert session.first_pass == 2


def test_the_manifest_of_a_failed_loop_has_what_was_measured(tmp_path: Path) -> None:
    model = torch.nn.Linear(4, 4)

    def train() -> None:
        with perfkit.profile(tmp_path / "mine", schedule="wait=1,warmup=1,active=3", model=model) as prof:
            for _ in range(3):
                prof.step(loss=0.5)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        train()
    manifest = read_manifest(tmp_path / "mine")
    assert manifest.state == "failed"
    assert manifest.step_kinds == ["cold", "warmup", "active"]
    assert manifest.ranks[0].loss == [0.5] * 3
    assert manifest.parameters == 20


def test_versions_are_those_that_matter() -> None:
    assert "h5py" in versions(["h5py"], "cpu")
    assert "safetensors" in versions(["safetensors"], "cpu")
    assert not {"h5py", "nccl"} & versions([None], "cpu").keys()


def test_an_own_loop_reports_what_it_recorded_or_why_not(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    schedule = "wait=0,warmup=1,active=1"
    with perfkit.profile(tmp_path / "short", schedule=schedule) as prof:
        prof.step()
    assert "nothing was recorded: 1 steps ran, the first one to be recorded is number 2" in capsys.readouterr().err
    with perfkit.profile(tmp_path / "none", schedule=schedule):
        pass
    assert "nothing was recorded: prof.step() was never called" in capsys.readouterr().err
    with perfkit.profile(tmp_path / "whole", schedule=schedule) as prof:
        for _ in prof.batches(range(2)):
            prof.step()
    assert "perfkit analyze" in capsys.readouterr().err


def test_ranks_without_a_process_group_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"RANK": "0", "WORLD_SIZE": "2", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "2"}.items():
        monkeypatch.setenv(name, value)
    with (
        pytest.raises(perfkit.PerfkitError, match="2 ranks, but there is no process group"),
        perfkit.profile(tmp_path / "lonely"),
    ):
        pass
