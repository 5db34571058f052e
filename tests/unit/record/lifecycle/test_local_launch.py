"""The parent of `perfkit run -n`: which of its ranks it reports as failed, and signals that it forwards."""

import signal
import subprocess
from pathlib import Path

import pytest

from perfkit.record.distributed.known_launchers import RENDEZVOUS_VARIABLE
from perfkit.record.lifecycle.launched_runs import FirstFailure, read_first_failure, write_first_failure
from perfkit.record.lifecycle.local_launch import launch, wait_for_ranks


def test_of_several_failures_one_by_a_signal_is_reported() -> None:
    ranks = [subprocess.Popen(["sh", "-c", how]) for how in ("exit 0", "exit 1", "kill -KILL $$", "exit 1")]
    for rank in ranks:
        rank.wait()
    assert wait_for_ranks(ranks, iter([])) == 2
    assert wait_for_ranks(ranks[:2], iter([])) == 1
    assert wait_for_ranks(ranks[:1], iter([])) is None


def test_a_signal_is_passed_on_to_every_rank() -> None:
    ranks = [subprocess.Popen(["sleep", "1000"]) for _ in range(2)]
    assert wait_for_ranks(ranks, iter([signal.SIGTERM])) is not None
    assert [rank.wait() for rank in ranks] == [-signal.SIGTERM] * 2


def test_ranks_that_another_has_ended_are_not_the_cause(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def start(_arguments: object, rank: int, _ranks: int, rendezvous: Path) -> subprocess.Popen[bytes]:
        if rank == 0:
            monkeypatch.setenv(RENDEZVOUS_VARIABLE, str(rendezvous))
            write_first_failure(FirstFailure(0, "no step has ended", ends_others=True), first=True)
        return subprocess.Popen(["sh", "-c", ["sleep 0.5; exit 1", "kill -KILL $$"][rank]], stdin=subprocess.PIPE)

    monkeypatch.setattr("perfkit.record.lifecycle.local_launch._start", start)
    with pytest.raises(SystemExit, match="1"):
        launch([], 2)
    assert capsys.readouterr().err == "perfkit: error: no step has ended\n"


@pytest.mark.parametrize("ends_others", [False, True])
def test_the_first_failure_is_read_as_it_was_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ends_others: bool
) -> None:
    monkeypatch.setenv(RENDEZVOUS_VARIABLE, str(tmp_path / "rendezvous"))
    failure = FirstFailure(3, "rank 3: lost", "ranks 0-2 wait", ends_others)
    write_first_failure(failure, first=True)
    assert read_first_failure(tmp_path) == failure
