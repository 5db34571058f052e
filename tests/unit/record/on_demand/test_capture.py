"""Captures of a loop in this process, asked for by another thread."""

import os
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

import msgspec
import pytest
import torch
from torch import profiler

import perfkit
from perfkit.base.atomic_write import atomic_write
from perfkit.errors import CaptureBusyError, CaptureError, StoreError
from perfkit.record.on_demand import agent
from perfkit.record.on_demand.completion import complete
from perfkit.record.on_demand.mailbox import Answer, Done, Mailbox, OpenMark, Plan, Request, Slot
from perfkit.record.on_demand.requester import agree, ask, await_end, make_plan, withdraw
from perfkit.record.process_stat import process_identity
from perfkit.record.recording.recording import Recording
from perfkit.records.manifest import CaptureRecord, RunManifest
from perfkit.records.monitor import EarlierSteps
from perfkit.storage import run_folder
from perfkit.storage.run_folder import read_manifest
from tests.support.processes.command import run_command
from tests.support.processes.launching import LIMIT_S, PYTHON, environment
from tests.support.processes.waiting import MOST_S, wait_until

SHORT = "wait=0,warmup=1,active=1"
AGENTS: list[agent.CaptureAgent] = []


@pytest.fixture(autouse=True)
def _quick_looks(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Look for requests three times per second, so that a capture begins half a second after the ranks' answers."""
    start = agent.CaptureAgent.begin

    def note_and_start(started: agent.CaptureAgent) -> None:
        AGENTS.append(started)
        start(started)

    monkeypatch.setattr(agent, "watch_s", lambda _: 0.3)
    monkeypatch.setattr(agent.CaptureAgent, "begin", note_and_start)
    yield
    AGENTS.clear()


@contextmanager
def asking() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(2) as threads:
        yield threads


def a_step(prof: Recording, sleep_s: float = 0.002) -> None:
    """Make a step; not while a request is answered: a busy machine may learn of the plan only after its steps."""
    wait_until(lambda: AGENTS[-1]._slot is None or AGENTS[-1]._plan is not None)
    make_step(prof, sleep_s)


def make_step(prof: Recording, sleep_s: float = 0.002) -> None:
    with prof.phase("forward"):
        torch.ones(8) @ torch.ones(8)
    time.sleep(sleep_s)
    prof.step()


@contextmanager
def after_the_schedule(folder: Path) -> Iterator[Recording]:
    with perfkit.profile(folder / "mine", schedule=SHORT) as prof:
        for _ in range(5):
            a_step(prof)
        yield prof


def capture(folder: Path, request: Request, silence_s: float = LIMIT_S) -> tuple[Plan, RunManifest]:
    slot = ask(folder, request)
    plan, _ = agree(slot, request.ranks or [0])
    return plan, await_end(slot, plan, silence_s)[1]


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_coming_steps_are_recorded(tmp_path: Path) -> None:
    with asking() as threads, perfkit.profile(tmp_path / "mine", schedule=SHORT) as prof:
        for _ in range(30):
            a_step(prof)
        result = threads.submit(run_command, "capture", prof.folder, "--steps", "2")
        while not result.done():
            a_step(prof)
        a_step(prof)
        a_step(prof)
    done = result.result()
    assert done.returncode == 0, done.stderr
    folder = prof.folder / "capture-1"
    manifest = read_manifest(folder)
    record = manifest.capture
    assert record is not None
    assert (record.condition, record.steps, record.ranks, record.problems) == (None, 2, [0], {})
    assert f"recording steps {record.first_step} to {record.first_step + 1} of 1 rank" in done.stderr
    assert done.stdout.startswith(f"{folder}: steps {record.first_step} to {record.first_step + 1}, 1 rank")
    (run,) = perfkit.analyze(folder).runs
    assert [step.step for step in run.ranks[0].steps] == [record.first_step, record.first_step + 1]
    assert run.run == "capture-1"
    assert manifest.step_kinds == ["warmup", "active", "active"]
    assert names(folder) == ["rank0.earlier_steps.json", "rank0.json.gz", "rank0.key_averages.txt", "run.json"]
    earlier = msgspec.json.decode((folder / "rank0.earlier_steps.json").read_bytes(), type=EarlierSteps)
    assert earlier.step[-1] == record.first_step - 2  # the step before the warm-up
    assert earlier.step == sorted(earlier.step)
    assert min(earlier.step_ns) >= 2_000_000
    assert names(prof.folder) == ["capture-1", "rank0.json.gz", "rank0.key_averages.txt", "run.json"]
    first = record.first_step
    assert prof.kinds[first - 2 : first + 3] == ["plain", "warmup", "warmup", "warmup", "cold"]
    assert set(prof.kinds[first + 3 :]) == {"plain"}
    (own,) = perfkit.analyze(prof.folder).runs  # without the captures in it
    assert [step.step for step in own.ranks[0].steps] == [1]
    (told,) = [finding.message for finding in own.findings if finding.code == "has_captures"]
    assert str(folder) in told


def test_the_schedule_goes_first(tmp_path: Path) -> None:
    with asking() as threads, perfkit.profile(tmp_path / "mine", schedule="wait=400,warmup=1,active=400") as prof:
        for _ in range(10):
            a_step(prof)
        early = threads.submit(capture, prof.folder, Request(steps=395))
        while not early.done():
            _step_before(300, prof)
        while not prof.recording:
            a_step(prof)
        during = threads.submit(run_command, "capture", prof.folder)
        while not during.done():
            assert prof.recording
            _step_before(700, prof)
    with pytest.raises(CaptureError, match="too close to those that the run's schedule records from step 400"):
        early.result()
    assert during.result().returncode == 1
    assert "rank 0 records the steps of its schedule until step 800" in during.result().stderr
    assert not list(prof.folder.glob("*capture*"))


def _step_before(limit: int, prof: Recording) -> None:
    """Make a step, as long as there are fewer: a request may take longer than they do."""
    if prof.steps < limit:
        a_step(prof)
    else:
        time.sleep(0.01)


def test_two_at_once_come_one_after_the_other(tmp_path: Path) -> None:
    command = [*PYTHON, "capture", "--timeout", f"{LIMIT_S}s"]
    logs = [tmp_path / "log0", tmp_path / "log1"]

    def told() -> str:
        return "".join(log.read_text() for log in logs)

    with after_the_schedule(tmp_path) as prof:
        # Processes: two commands in one would redirect the same streams.
        asking = []
        for log in logs:
            with log.open("w") as stream:
                asking.append(subprocess.Popen([*command, str(prof.folder)], env=environment(), stderr=stream))
        wait_until(lambda: "waiting for it" in told())  # the first lasts until then, as no step ends
        while any(one.poll() is None for one in asking):
            a_step(prof)
    assert [one.returncode for one in asking] == [0, 0], told()
    records = [read_manifest(prof.folder / f"capture-{number}").capture for number in (1, 2)]
    assert records[0] is not None
    assert records[1] is not None
    assert records[1].first_step >= records[0].first_step + 3


def test_a_request_while_another_is_in_progress_is_refused(tmp_path: Path) -> None:
    with perfkit.profile(tmp_path / "mine", schedule=SHORT) as prof:
        slot = ask(prof.folder, Request(steps=3))
        with pytest.raises(CaptureBusyError, match="capture-1 is in progress"):
            ask(prof.folder, Request(steps=3))
        withdraw(slot)
        again = ask(prof.folder, Request(steps=3))
        assert again.number == 1
        withdraw(again)
    assert not list(prof.folder.glob("*capture*"))


def test_a_run_that_ends_within_a_capture_leaves_the_steps_that_ended(tmp_path: Path) -> None:
    with asking() as threads, after_the_schedule(tmp_path) as prof:
        slot = ask(prof.folder, Request(steps=50))
        planned = threads.submit(agree, slot, [0])
        while not planned.done():
            a_step(prof)
        plan, _ = planned.result()
        while prof.steps < plan.first_step + 2:
            a_step(prof)
    manifest = await_end(slot, plan, LIMIT_S)[1]
    assert manifest.capture is not None
    assert manifest.capture.problems == {0: "the run ended after 2 of 50 steps"}
    (run,) = perfkit.analyze(slot.target).runs
    assert [step.step for step in run.ranks[0].steps] == [plan.first_step, plan.first_step + 1]
    assert "incomplete_capture" in {finding.code for finding in run.findings}
    assert not (prof.folder / ".captures").exists()


def test_a_run_that_ends_before_the_steps_says_so(tmp_path: Path) -> None:
    with asking() as threads, after_the_schedule(tmp_path) as prof:
        result = threads.submit(capture, prof.folder, Request(steps=3, first_step=10**6))
        slot = Slot(prof.folder, 1)
        while slot.plan() is None:
            a_step(prof)
    with pytest.raises(CaptureError, match="nothing was recorded: the run ended after step"):
        result.result()
    assert not list(prof.folder.glob("*capture*"))
    with pytest.raises(CaptureError, match="the run has completed"):
        ask(prof.folder, Request(steps=3))


def test_a_withdrawn_capture_leaves_nothing(tmp_path: Path) -> None:
    with asking() as threads, after_the_schedule(tmp_path) as prof:
        slot = ask(prof.folder, Request(steps=50))
        planned = threads.submit(agree, slot, [0])
        while not planned.done():
            a_step(prof)
        while prof.kinds[-1] != "warmup":
            a_step(prof)
        withdraw(slot)
        a_step(prof)
        a_step(prof)
        assert not prof.recording
        with profiler.profile() as own:  # perfkit's is not in the way any more
            torch.ones(8) @ torch.ones(8)
    assert len(own.events()) > 0
    assert not list(prof.folder.glob("*capture*"))


def test_a_capture_has_none_of_a_withdrawn_ones_steps(tmp_path: Path) -> None:
    with asking() as threads, after_the_schedule(tmp_path) as prof:
        first = ask(prof.folder, Request(steps=3))
        planned = threads.submit(agree, first, [0])
        while not planned.done() or prof.steps < planned.result()[0].first_step + 1:
            a_step(prof)
        withdraw(first)  # while a step is recorded
        again = ask(prof.folder, Request(steps=2))
        assert (again.number, first.exists(), again.exists()) == (1, False, True)
        withdraw(first)  # it is not there any more
        result = threads.submit(lambda: await_end(again, agree(again, [0])[0], LIMIT_S))
        for _ in range(8):
            a_step(prof)
        assert "cold" in prof.kinds[planned.result()[0].first_step :][:3]  # the first has stopped at once
        while not result.done():
            a_step(prof)
    record = result.result()[1].capture
    assert record is not None
    assert (record.steps, record.problems) == (2, {})
    (run,) = perfkit.analyze(again.target).runs
    assert [step.step for step in run.ranks[0].steps] == [record.first_step, record.first_step + 1]
    assert record.first_step > planned.result()[0].first_step + 3


def test_what_another_capture_of_the_number_left_does_not_count(tmp_path: Path) -> None:
    with perfkit.profile(tmp_path / "mine", schedule=SHORT) as prof:
        a_step(prof)
        folder = prof.folder
    slot = Slot(folder, 1, "second")
    slot.folder.mkdir(parents=True)
    slot.write(".request.json", Request(steps=2, identifier="second"))
    slot.write(".plan.json", Plan(identifier="second", first_step=9, steps=2, ranks=[0, 1]))
    slot.write(".rank0.done.json", Done(identifier="second", steps=2))
    slot.write(".rank1.done.json", Done(identifier="first", steps=2))
    (slot.folder / "rank7.json.gz").touch()  # was being written when the first was withdrawn
    assert complete(slot) is None
    slot.write(".rank1.done.json", Done(identifier="second", steps=2))
    assert complete(Slot(folder, 1, "first")) is None
    assert complete(slot) == slot.target
    assert names(slot.target) == ["run.json"]


def recorded_slot(folder: Path) -> Slot:
    """Return a capture whose only rank is done."""
    slot = Slot(folder, 1, "first")
    slot.folder.mkdir(parents=True)
    slot.write(".request.json", Request(steps=2, identifier="first"))
    slot.write(".plan.json", Plan(identifier="first", first_step=9, steps=2, ranks=[0]))
    slot.write(".rank0.done.json", Done(identifier="first", steps=2))
    return slot


@pytest.mark.parametrize("as_far_as", ["manifest", "name"])
def test_only_one_of_two_processes_finishes_a_capture(
    as_far_as: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with perfkit.profile(tmp_path / "mine", schedule=SHORT) as prof:
        a_step(prof)
    slot = recorded_slot(prof.folder)

    @contextmanager
    def overtaken(path: Path) -> Iterator[BinaryIO]:
        with atomic_write(path) as stream:
            yield stream
            monkeypatch.undo()
            if as_far_as == "name":
                assert complete(slot) == slot.target
            else:
                (slot.folder / "run.json").write_bytes(b"{}")
                [temporary] = slot.folder.glob(".run.json*.tmp")
                temporary.unlink()

    monkeypatch.setattr(run_folder, "atomic_write", overtaken)
    assert complete(slot) is None
    assert not slot.folder.exists() or as_far_as == "manifest"


def test_a_manifest_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    with perfkit.profile(tmp_path / "mine", schedule=SHORT) as prof:
        a_step(prof)
    slot = recorded_slot(prof.folder)
    (prof.folder / "run.json").unlink()
    with pytest.raises(StoreError, match=r"run\.json"):
        complete(slot)


def test_a_rank_that_learns_of_the_steps_too_late_says_so(tmp_path: Path) -> None:
    with perfkit.profile(tmp_path / "mine", schedule=SHORT) as prof:
        for _ in range(20):
            a_step(prof)
        slot = ask(prof.folder, Request(steps=3))
        while not slot.ranks_with("at"):
            make_step(prof)
        plan = Plan(identifier=slot.identifier or "", first_step=7, steps=3, ranks=[0])
        slot.write(".plan.json", plan)
        while not slot.ranks_with("done"):
            make_step(prof)
        with pytest.raises(CaptureError, match="when it learned that step 7 is to be the first"):
            await_end(slot, plan, LIMIT_S)
        a_step(prof)


def test_a_profiler_of_the_programs_own_is_left_alone(tmp_path: Path) -> None:
    with asking() as threads, after_the_schedule(tmp_path) as prof:
        with profiler.profile() as own:
            result = threads.submit(capture, prof.folder, Request(steps=3))
            while not result.done():
                a_step(prof)
        a_step(prof)
    with pytest.raises(CaptureError, match="its own profiler"):
        result.result()
    assert len(own.events()) > 0


def test_a_loop_that_fails_within_a_capture(tmp_path: Path) -> None:
    def train(threads: ThreadPoolExecutor) -> None:
        with after_the_schedule(tmp_path) as prof:
            slot = ask(prof.folder, Request(steps=50))
            planned = threads.submit(agree, slot, [0])
            while not planned.done() or prof.steps < planned.result()[0].first_step + 3:
                a_step(prof)
            raise ValueError("mine")

    with asking() as threads, pytest.raises(ValueError, match="mine"):
        train(threads)
    manifest = read_manifest(tmp_path / "mine" / "capture-1")
    assert manifest.capture is not None
    assert manifest.capture.problems == {0: "the run ended after 3 of 50 steps"}
    assert read_manifest(tmp_path / "mine").state == "failed"
    assert not (tmp_path / "mine" / ".captures").exists()


def test_a_run_that_was_killed_is_recognised(tmp_path: Path) -> None:
    place = process_identity().host
    if not place:
        pytest.skip("this system has no pidfds")
    with perfkit.profile(tmp_path / "mine", schedule=SHORT) as prof:
        a_step(prof)
        ended = os.fork()
        if not ended:
            os._exit(0)
        os.waitpid(ended, 0)
        Mailbox(prof.folder).open(OpenMark(host=place, pid=ended, poll_s=1))
        done = run_command("capture", prof.folder)
    assert done.returncode == 1
    assert f"the run was killed: its rank 0, process {ended} of this host, is gone" in done.stderr


def test_a_request_whose_sender_was_killed_is_removed(tmp_path: Path) -> None:
    with perfkit.profile(tmp_path / "mine", schedule=SHORT) as prof, asking() as threads:
        slot = _leave_answered(prof)
        _wait(prof, lambda: not slot.exists())
        result = threads.submit(capture, prof.folder, Request(steps=1))
        while not result.done():
            a_step(prof)
    assert result.result()[1].capture is not None


def test_a_request_that_cannot_be_removed_keeps_no_rank_waiting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Slot, "remove", lambda _: None)  # as if rank 0 was stuck
    with perfkit.profile(tmp_path / "mine", schedule=SHORT) as prof:
        _leave_answered(prof)
        other = Slot(prof.folder, 2)
        other.folder.mkdir()
        other.write(".request.json", Request(steps=1))
        _wait(prof, lambda: other.ranks_with("at") == {0})
        assert other.folder.exists()
        monkeypatch.undo()


def _leave_answered(prof: Recording) -> Slot:
    """Ask for a capture as one who was killed long ago, once the rank had answered."""
    slot = ask(prof.folder, Request(steps=3))
    _wait(prof, lambda: slot.ranks_with("at") == {0})
    os.utime(slot.folder, (0, 0))
    return slot


def _wait(prof: Recording, condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + MOST_S
    while not condition():
        assert time.monotonic() < deadline
        make_step(prof)


def test_folders_that_are_no_run(tmp_path: Path) -> None:
    done = run_command("capture", tmp_path)
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)
    assert "cannot read" in done.stderr
    assert run_command("capture", tmp_path, "--steps", "0").returncode == 2


def test_ranks_that_do_not_exist_are_refused(tmp_path: Path) -> None:
    with perfkit.profile(tmp_path / "mine", schedule=SHORT) as prof:
        a_step(prof)
        done = run_command("capture", prof.folder, "--ranks", "0,7")
    assert (done.returncode, "--ranks 7: no such rank" in done.stderr) == (2, True)


@pytest.mark.parametrize("ranks", [-1, 0, 10**12])
def test_a_manifest_of_more_ranks_than_any_run_has_is_refused(ranks: int, tmp_path: Path) -> None:
    with perfkit.profile(tmp_path / "mine", schedule=SHORT) as prof:
        a_step(prof)
        path = prof.folder / "run.json"
        path.write_text(path.read_text().replace('"world_size": 1', f'"world_size": {ranks}'))
        done = run_command("capture", prof.folder, "--timeout", "1s")
    assert (done.returncode, f"run.json names {ranks:,} ranks" in done.stderr) == (1, True)


def test_a_folder_that_is_gone_does_not_stop_the_loop(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with asking() as threads, after_the_schedule(tmp_path) as prof:
        slot = ask(prof.folder, Request(steps=3))
        planned = threads.submit(agree, slot, [0])
        while not planned.done():
            a_step(prof)
        (prof.folder / ".captures").rename(tmp_path / "elsewhere")
        for _ in range(100):
            a_step(prof)
    assert prof.steps > 100
    assert "Traceback" not in capfd.readouterr().err


def test_an_error_at_the_end_of_a_step_ends_captures_and_not_the_loop(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    start = threading.Thread.start

    def start_unless_asking(thread: threading.Thread) -> None:
        if thread.name.startswith("perfkit-asks"):
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", start_unless_asking)
    with perfkit.profile(tmp_path / "mine", schedule=SHORT, capture_when=("every=100",)) as prof:
        for _ in range(250):
            a_step(prof, 0)
        assert prof.kind_in_progress is None
        with pytest.raises(CaptureError):
            ask(prof.folder, Request(steps=3))
    assert prof.steps == 250
    assert read_manifest(prof.folder).state == "completed"
    lines = [line for line in capfd.readouterr().err.splitlines() if "can't start new thread" in line]
    assert lines == ["perfkit: warning: rank 0: no more captures in this run: RuntimeError: can't start new thread"]
    assert not (prof.folder / ".captures").exists()


def test_the_plan_is_ahead_of_all_ranks_and_after_what_is_due(tmp_path: Path) -> None:
    slot = Slot(tmp_path, 1)
    slot.folder.mkdir(parents=True)
    answers = {
        0: Answer(rank=0, step=100, step_ns=100_000_000),
        1: Answer(rank=1, step=103, step_ns=110_000_000),
    }

    def first(request: Request) -> int:
        slot.write(".request.json", request)
        return make_plan(slot, answers)[0].first_step

    assert first(Request(steps=3)) == 103 + 2 + 15
    assert first(Request(steps=3, first_step=499, period=500)) == 499
    assert first(Request(steps=3, first_step=99, period=50)) == 149
    assert first(Request(steps=3, first_step=99)) == 120
    answers[1] = msgspec.structs.replace(answers[1], free_until=121)
    with pytest.raises(CaptureError, match="steps 120 to 122 are too close"):
        first(Request(steps=3))
    assert first(Request(steps=2)) == 120


@pytest.mark.slow  # waits for stalls that are longer than those of a busy machine
def test_a_periodic_stall_is_caught(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    def caught(folder: Path) -> list[Path]:
        return [path for path in folder.glob("capture-*") if "like steps" in str(record_of(path).reason)]

    rules = {"capture_when": ["step > 40x median"], "captures": 30}  # a busy machine may have long steps of its own
    with perfkit.profile(tmp_path / "mine", schedule=SHORT, **rules) as prof:  # type: ignore[arg-type]
        while prof.steps < 4000 and not (prof.steps % 150 == 10 and caught(prof.folder)):
            a_step(prof, 0.4 if prof.steps % 150 == 149 else 0.003)
    (folder,) = caught(prof.folder)
    record = record_of(folder)
    (stall,) = [step for step in range(record.first_step, record.first_step + 3) if step % 150 == 149]
    (run,) = perfkit.analyze(folder).runs
    assert [step.wall_ns >= 400_000_000 for step in run.ranks[0].steps if step.step == stall] == [True]
    assert f"{folder}: steps {record.first_step} to {record.first_step + 2}, because " in capfd.readouterr().err


def record_of(folder: Path) -> CaptureRecord:
    record = read_manifest(folder).capture
    assert record is not None
    return record
