"""Captures of which one process withdraws, finishes or ends what another one is busy with."""

from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

import perfkit
from perfkit.errors import CaptureError, StoreError
from perfkit.record.on_demand import completion, mailbox
from perfkit.record.on_demand.agent import CaptureAgent
from perfkit.record.on_demand.completion import complete
from perfkit.record.on_demand.mailbox import Answer, Done, Mailbox, OpenMark, Plan, Request, Slot
from perfkit.record.on_demand.requester import agree, ask, await_end
from perfkit.record.on_demand.requesting_rank import folder_bytes
from perfkit.records.manifest import RunManifest
from perfkit.storage.run_folder import read_manifest
from tests.support.reports.histories import make_run_folder

SHORT = "wait=0,warmup=1,active=1"
ASKED_BY_A_CONDITION = Request(steps=2, identifier="first", condition="step > 1.5x median", reason="step 5 took long")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    run = make_run_folder(tmp_path / "run", 10, state="running")
    Mailbox(run).open(OpenMark(host="", pid=0, poll_s=1.0))
    return run


def recorded(folder: Path, request: Request = ASKED_BY_A_CONDITION) -> Slot:
    """Return a capture whose only rank is done."""
    slot = Slot(folder, 1, request.identifier)
    slot.folder.mkdir()
    slot.write(".request.json", request)
    slot.write(".plan.json", Plan(identifier="first", first_step=9, steps=2, ranks=[0]))
    slot.write(".rank0.done.json", Done(identifier="first", steps=2))
    return slot


def before(monkeypatch: pytest.MonkeyPatch, place: object, name: str, action: Callable[[], object]) -> None:
    """Let something happen, once, just before a function is called."""
    function = getattr(place, name)

    def interrupted(*arguments: object, **options: object) -> object:
        monkeypatch.setattr(place, name, function)
        action()
        return function(*arguments, **options)

    monkeypatch.setattr(place, name, interrupted)


def test_a_manifest_has_the_condition_although_another_process_removes_the_messages(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slot = recorded(folder)
    before(monkeypatch, completion, "read_manifest", lambda: (slot.folder / ".request.json").unlink())
    complete(slot)
    capture = read_manifest(slot.target).capture
    assert capture is not None
    assert (capture.condition, capture.reason) == ("step > 1.5x median", "step 5 took long")


@pytest.mark.parametrize("name", ["_remove_of_others", "list_files", "write_manifest", "_publish"])
def test_a_capture_is_finished_or_withdrawn_but_never_both(
    name: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slot = recorded(folder)
    before(monkeypatch, completion, name, slot.remove)
    assert complete(slot) is None
    assert [path.name for path in folder.rglob("*capture*")] == [".captures"]


def test_a_capture_that_is_being_withdrawn_is_not_finished(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    slot = recorded(folder)
    (slot.folder / "rank0.json.gz").touch()
    seen = []
    before(monkeypatch, mailbox, "_remove_folder", lambda: seen.append(complete(slot)))
    slot.remove()
    assert seen == [None]
    assert not slot.target.exists()


def test_what_could_not_be_removed_at_once_goes_with_the_run(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    slot = recorded(folder)
    with monkeypatch.context() as stuck:
        stuck.setattr(mailbox, "_remove_folder", lambda _: None)
        slot.remove()
    assert (slot.exists(), Mailbox(folder).in_progress(), Mailbox(folder).next_number()) == (False, [], 1)
    Mailbox(folder).close()
    Mailbox(folder).remove_if_over()
    assert not Mailbox(folder).folder.exists()


def test_a_capture_whose_finisher_is_killed_is_finished_by_another(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed() -> None:
        raise KeyboardInterrupt

    slot = recorded(folder)
    before(monkeypatch, Path, "rename", killed)
    with pytest.raises(KeyboardInterrupt):
        complete(slot)
    assert complete(slot) == slot.target
    assert [path.name for path in slot.target.iterdir()] == ["run.json"]


def test_a_finished_capture_is_found_where_its_folder_is_said_not_to_exist(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slot = recorded(folder)
    plan = slot.plan()
    assert plan is not None
    is_dir = Path.is_dir
    # As on NFS, whose client remembers for a while what was not there.
    monkeypatch.setattr(Path, "is_dir", lambda path: path != slot.target and is_dir(path))
    assert await_end(slot, plan, 60.0, wait=lambda _: complete(slot))[0] == slot.target


@pytest.mark.parametrize("is_removed", [True, False])
def test_a_run_that_ends_while_it_is_asked_says_so_at_once(
    is_removed: bool, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def end() -> None:
        Mailbox(folder).close()
        if is_removed:
            Slot(folder, 1).remove()

    before(monkeypatch, Slot, "write", end)
    with pytest.raises(CaptureError, match=r"the run has just ended|its run has ended"):
        ask(folder, Request(steps=2))
    assert not Mailbox(folder).folder.exists()


def test_a_plan_for_what_was_withdrawn_is_no_error_of_the_disk(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    slot = ask(folder, Request(steps=2))
    slot.write(".rank0.at.json", Answer(rank=0, step=3, step_ns=None))
    before(monkeypatch, Slot, "write", slot.remove)
    with pytest.raises(CaptureError, match="was withdrawn, or its run has ended"):
        agree(slot, [0])


def test_a_plan_that_cannot_be_written_is_an_error_of_the_disk(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise StoreError("no space left")

    slot = ask(folder, Request(steps=2))
    slot.write(".rank0.at.json", Answer(rank=0, step=3, step_ns=None))
    monkeypatch.setattr(Slot, "write", full)
    with pytest.raises(StoreError, match="no space left"):
        agree(slot, [0])


@pytest.fixture
def agents(monkeypatch: pytest.MonkeyPatch) -> list[CaptureAgent]:
    """The agents that have been started; their threads do not look for requests."""
    started: list[CaptureAgent] = []
    start = CaptureAgent.begin

    def note(self: CaptureAgent) -> None:
        started.append(self)
        start(self)

    monkeypatch.setattr(CaptureAgent, "begin", note)
    monkeypatch.setattr(CaptureAgent, "_watch", lambda _: None)
    return started


def test_a_request_that_is_withdrawn_before_the_answer_is_no_failure(
    tmp_path: Path, agents: list[CaptureAgent], monkeypatch: pytest.MonkeyPatch
) -> None:
    with perfkit.profile(tmp_path, schedule=SHORT) as session:
        slot = ask(session.folder, Request(steps=2))
        before(monkeypatch, Slot, "write", slot.remove)
        agents[0]._poll()
        assert agents[0]._slot is None
    assert not Mailbox(session.folder).folder.exists()


def test_a_request_is_not_answered_when_the_run_has_ended(tmp_path: Path, agents: list[CaptureAgent]) -> None:
    with perfkit.profile(tmp_path, schedule=SHORT) as session:
        slot = ask(session.folder, Request(steps=2))
        agents[0]._stopped.set()  # the other thread sees the request at this moment
        agents[0]._poll()
        assert slot.names() == {".request.json"}
        agents[0]._stopped.clear()
    assert not Mailbox(session.folder).folder.exists()


def test_a_rank_that_comes_too_late_for_its_capture_is_no_failure(
    tmp_path: Path, agents: list[CaptureAgent], monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    with perfkit.profile(tmp_path, schedule=SHORT) as session:
        slot = ask(session.folder, Request(steps=2))
        agents[0]._poll()
        before(monkeypatch, Slot, "write", lambda: slot.folder.rename(slot.target))
    assert "a capture failed" not in capfd.readouterr().err
    assert not Mailbox(session.folder).folder.exists()


def test_a_capture_that_cannot_be_ended_does_not_leave_the_run_open(
    tmp_path: Path, agents: list[CaptureAgent], monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def full(_: Slot, name: str, __: object) -> None:
        raise StoreError(f"cannot write {name}: no space left")

    with perfkit.profile(tmp_path, schedule=SHORT) as session:
        ask(session.folder, Request(steps=2))
        agents[0]._poll()
        monkeypatch.setattr(Slot, "write", full)
    assert "rank 0: a capture failed: cannot write .rank0.done.json: no space left" in capfd.readouterr().err
    assert not Mailbox(session.folder).folder.exists()


def test_a_capture_that_somebody_removes_has_no_size(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).write_bytes(b"123")
    assert folder_bytes(tmp_path) == 6
    assert folder_bytes(tmp_path / "gone") == 0


def test_the_manifest_of_a_capture_is_that_of_its_run(folder: Path) -> None:
    slot = recorded(folder)
    assert complete(slot) == slot.target
    captured = msgspec.json.decode((slot.target / "run.json").read_bytes(), type=RunManifest)
    assert (captured.run, captured.workload) == ("capture-1", read_manifest(folder).workload)
