"""Runs of ranks that end where no code of perfkit's runs: the parent of `perfkit run -n` closes them."""

import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from perfkit.errors import RunError
from perfkit.record.distributed.known_launchers import RENDEZVOUS_VARIABLE
from perfkit.record.endings import HangupError, TerminatedError
from perfkit.record.lifecycle.failure_guard import fail_with_parent
from perfkit.record.lifecycle.launched_runs import close_runs, name_cause, note_run, remove_temporary
from perfkit.record.lifecycle.local_launch import launch
from perfkit.records.manifest import Failure
from perfkit.storage.run_folder import claim_failure, fail, read_manifest, write_manifest
from tests.support.manifests import make_manifest

LEFT = [
    ".closing",
    ".hang0",
    ".rank0.left",
    "..rank0.left.1a2b.tmp",
    ".rank1.process",
    ".rank0.json.gz.1a2b.tmp",
    ".run.json.1a2b.tmp",
]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder of a run in progress, which a rank has noted in `tmp_path/notes`."""
    folder = tmp_path / "traces" / "a run\nof\tmine"
    (folder / ".captures").mkdir(parents=True)
    write_manifest(folder, make_manifest())
    for name in [*LEFT, ".mine", "rank0.json.gz"]:
        (folder / name).touch()
    (tmp_path / "notes").mkdir()
    monkeypatch.setenv(RENDEZVOUS_VARIABLE, str(tmp_path / "notes" / "rendezvous"))
    note_run(folder)
    monkeypatch.delenv(RENDEZVOUS_VARIABLE)
    return folder


def test_a_run_whose_ranks_were_killed_is_failed_and_tidy(run: Path, tmp_path: Path) -> None:
    close_runs(tmp_path / "notes", [None, None], "ended by a second SIGTERM")
    manifest = read_manifest(run)
    assert (manifest.state, manifest.failure) == ("failed", Failure(rank=0, message="ended by a second SIGTERM"))
    assert manifest.finished_at is not None
    assert [file.path for file in manifest.files] == ["rank0.json.gz"]
    assert sorted(path.name for path in run.iterdir()) == [".mine", "failure.json", "rank0.json.gz", "run.json"]


@pytest.mark.parametrize(
    ("codes", "message", "rank"),
    [([1, -9], "was ended by signal 9", 1), ([None, 3], "ended with exit code 3", 1)],
)
def test_the_cause_is_the_rank_that_ended_by_itself(
    run: Path, tmp_path: Path, codes: list[int | None], message: str, rank: int
) -> None:
    close_runs(tmp_path / "notes", codes, None)
    assert read_manifest(run).failure == Failure(rank=rank, message=message)


def test_a_rank_that_the_parent_ends_is_not_the_cause(run: Path, tmp_path: Path) -> None:
    name_cause(tmp_path / "notes", [None, -9])
    assert not claim_failure(run, Failure(rank=0, message="ended by SIGTERM"))  # rank 0, when the parent ends it
    close_runs(tmp_path / "notes", [None, -9], None)
    manifest = read_manifest(run)
    assert (manifest.state, manifest.failure) == ("failed", Failure(rank=1, message="was ended by signal 9"))


def test_what_a_rank_has_recorded_stays(run: Path, tmp_path: Path) -> None:
    failure = Failure(rank=1, message="ValueError: no")
    claim_failure(run, failure)
    fail(run, failure, {})
    before = (run / "run.json").read_bytes()
    close_runs(tmp_path / "notes", [1, 1], None)
    assert (run / "run.json").read_bytes() == before
    assert not (run / ".closing").exists()


@pytest.mark.parametrize("codes", [[0, 0], [1, 0]])
def test_a_run_that_has_completed_is_left_alone(run: Path, tmp_path: Path, codes: list[int | None]) -> None:
    write_manifest(run, make_manifest("completed"))
    close_runs(tmp_path / "notes", codes, None)
    assert read_manifest(run).state == "completed"
    assert not (run / "failure.json").exists()


def test_a_folder_that_is_gone_or_damaged_is_no_error(run: Path, tmp_path: Path) -> None:
    (run / "run.json").write_text("{")
    close_runs(tmp_path / "notes", [1], None)
    close_runs(tmp_path / "nowhere", [1], None)
    assert (run / "run.json").read_text() == "{"
    assert not (tmp_path / "nowhere").exists()


def ranks_that(monkeypatch: pytest.MonkeyPatch, begin: Callable[[Path], None], *hows: str) -> None:
    """Let `launch` start shells as ranks, which `begin` gets the rendezvous of."""

    def start(_arguments: object, rank: int, _ranks: int, rendezvous: Path) -> subprocess.Popen[bytes]:
        begin(rendezvous)
        return subprocess.Popen(["sh", "-c", hows[rank]], stdin=subprocess.PIPE, start_new_session=True)

    monkeypatch.setattr("perfkit.record.lifecycle.local_launch._start", start)


def test_a_second_sigterm_closes_the_run(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def begin(rendezvous: Path) -> None:
        monkeypatch.setenv(RENDEZVOUS_VARIABLE, str(rendezvous))
        note_run(run)

    # What ignores the signal sends both to its parent, which is this process: the second once it has got the first.
    stubborn = "trap 'kill -TERM $PPID' TERM; kill -TERM $PPID; for i in $(seq 6000); do sleep 0.1; done"
    ranks_that(monkeypatch, begin, stubborn)
    with pytest.raises(TerminatedError, match="ended by a second SIGTERM"):
        launch([], 1, name_failed=True)
    assert read_manifest(run).state == "failed"


@pytest.mark.parametrize(("number", "error"), [(signal.SIGTERM, TerminatedError), (signal.SIGHUP, HangupError)])
def test_a_signal_before_the_ranks_handle_it_has_its_own_exit_code(
    number: signal.Signals, error: type[TerminatedError], monkeypatch: pytest.MonkeyPatch
) -> None:
    ranks_that(monkeypatch, lambda _: None, f"sleep 0.3; kill -{number} $PPID; sleep 1000", "sleep 1000")
    with pytest.raises(error, match=f"^ended by {number.name}$"):
        launch([], 2)


def test_a_rank_that_was_sent_sigterm_alone_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    ranks_that(monkeypatch, lambda _: None, "sleep 1000", "kill -TERM $$")
    with pytest.raises(RunError, match=r"^rank 1 was ended by SIGTERM$") as raised:
        launch([], 2)
    assert raised.value.exit_code == 1


def test_what_cannot_be_removed_keeps_nothing_else(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    unlink = Path.unlink

    def refuse_one(path: Path, missing_ok: bool = False) -> None:
        if path.name == ".rank0.left":
            raise PermissionError
        unlink(path, missing_ok=missing_ok)

    monkeypatch.setattr(Path, "unlink", refuse_one)
    remove_temporary(run)
    assert sorted(path.name for path in run.iterdir()) == [".mine", ".rank0.left", "rank0.json.gz", "run.json"]


def test_where_a_rank_failed_before_its_launcher_was_killed_nothing_temporary_stays(
    run: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    actions: list[Callable[[], None]] = []
    monkeypatch.setattr(
        "perfkit.record.lifecycle.failure_guard.before_end_with_parent", lambda action, **_: actions.append(action)
    )
    fail_with_parent(lambda: run, 0)
    record, clean = actions
    failure = Failure(rank=1, message="ValueError: no")
    claim_failure(run, failure)
    record()
    clean()
    assert all((run / name).exists() for name in LEFT)  # rank 1 still writes the manifest, by one of these files
    fail(run, failure, {})
    clean()
    assert sorted(path.name for path in run.iterdir()) == [".mine", "failure.json", "rank0.json.gz", "run.json"]
    assert read_manifest(run).failure == failure
    assert capsys.readouterr().err == ""
