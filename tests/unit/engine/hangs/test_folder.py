"""Which of the records in a folder tell what is the case now."""

from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

from perfkit.engine.hangs import folder as folders
from perfkit.engine.hangs.folder import STATE_NAME
from perfkit.errors import StoreError
from perfkit.records.hang import Diagnosis, RankState
from perfkit.records.manifest import Failure
from perfkit.report.wording import worded
from perfkit.storage.run_folder import claim_failure
from tests.support.hangs.rank_states import call, frame, state

KILLED = "was killed, or ended without a message"
WAITING = (call(1, done=True), call(2))


def leave(folder: Path, *states: RankState) -> None:
    for left in states:
        (folder / STATE_NAME.format(left.rank)).write_bytes(msgspec.json.encode(left))


def diagnose_folder(folder: Path, **known: dict[int, str]) -> Diagnosis:
    return worded(folders.diagnose_folder(folder, **known))


def test_the_end_of_a_rank_counts_more_than_what_it_did_before(tmp_path: Path) -> None:
    leave(tmp_path, state(0, *WAITING, world_size=2), state(1, call(1, done=True), world_size=2))
    found = diagnose_folder(tmp_path, absent={1: KILLED})
    assert found.headline.endswith(f"; rank 1 {KILLED}")
    leave(tmp_path, state(1, call(1, done=True), world_size=2, ended="ended with ValueError"))
    assert diagnose_folder(tmp_path, absent={1: KILLED}).headline.endswith("it ended with ValueError")


def test_of_ranks_that_have_ended_the_first_failure_comes_first(tmp_path: Path) -> None:
    leave(tmp_path, *(state(rank, call(1, done=True), world_size=2, ended="ended with RunError") for rank in range(2)))
    assert diagnose_folder(tmp_path).headline == "rank 0 ended with RunError"
    assert claim_failure(tmp_path, Failure(rank=1, message="RunError"))
    found = diagnose_folder(tmp_path)
    assert found.headline == "rank 1 ended with RunError"
    assert [fault.ranks for fault in found.faults] == [[1], [0]]


def test_an_answer_to_an_earlier_request_is_not_compared(tmp_path: Path) -> None:
    leave(
        tmp_path,
        replace(state(0, *WAITING, world_size=2), request=1),
        replace(state(1, call(1, done=True), main=[frame("data.py", 88, "load")], world_size=2), request=0),
    )
    found = diagnose_folder(tmp_path)
    assert found.headline.endswith("; rank 1 has left no record of its collectives")
    assert found.unread[0] == "rank1.hang.json: it is of an earlier report"
    assert diagnose_folder(tmp_path, silent={0: "runs", 1: "runs"}).headline.endswith("; rank 1 runs")


def test_of_a_report_after_which_all_went_on_everything_is_shown(tmp_path: Path) -> None:
    left = [replace(state(rank, *WAITING, world_size=2), request=0, resumed=True) for rank in range(2)]
    leave(tmp_path, *left)
    assert diagnose_folder(tmp_path).verdict == "agree"
    leave(tmp_path, replace(left[0], resumed=False))
    found = diagnose_folder(tmp_path)
    assert found.unread == ["rank1.hang.json: it is of an earlier report"]
    assert [place.state for place in found.ranks][1:] == ["unknown"]


def test_a_file_is_refused_with_what_to_give_instead(tmp_path: Path) -> None:
    leave(tmp_path, state(0))
    with pytest.raises(StoreError, match="is a file: give the folder"):
        diagnose_folder(tmp_path / STATE_NAME.format(0))
