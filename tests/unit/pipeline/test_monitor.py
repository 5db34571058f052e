"""Step logs in run folders: as a DataFrame, and in reports."""

import json
import os
import re
from pathlib import Path

import numpy as np
import pytest

import perfkit
from perfkit.errors import StoreError, TraceError
from perfkit.records.monitor import HEADER_BYTES, LOSS_GIVEN, STEP_DTYPE
from perfkit.storage.step_log.follow import RunFollower
from perfkit.storage.step_log.reader import roll_up
from perfkit.subjects.monitor.tables import events, whole_run
from perfkit.tools.watch.view import find_events
from tests.support.monitor.made_runs import eventful_times, own_times, records, write_log, write_run
from tests.support.processes.command import run_command


def test_a_row_per_rank_and_step(tmp_path: Path) -> None:
    own = own_times(2, 50)
    write_log(tmp_path, 0, 2, records(own, 0))
    write_log(tmp_path, 1, 2, np.concatenate([roll_up(records(own, 1)[:40]), records(own, 1)[40:]]))
    table = perfkit.steps(tmp_path)
    assert table["rank"].tolist() == [0] * 50 + [1] * 30
    assert table[table["rank"] == 0]["step"].tolist() == list(range(50))
    assert table[table["rolled_up"]]["steps"].tolist() == [2] * 20
    assert table["steps"].sum() == 100
    assert table["step_ns"].dtype == np.int64
    assert table["forward_ns"].isna().all()
    assert "check" not in table


def test_without_logs_there_is_no_table(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="no log of the monitor here"):
        perfkit.steps(tmp_path)
    with pytest.raises(StoreError, match="cannot read"):
        perfkit.steps(tmp_path / "nothing")


def test_a_folder_with_logs_only_is_analysed(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "long-run", eventful_times(4))
    (run,) = perfkit.analyze(folder).runs
    assert run.monitor is not None
    assert run.world_size == 4
    assert run.verdict.sentence.startswith("A step takes 57.2 ms, ")
    codes = [finding.code for finding in run.findings]
    assert codes == ["step_time_changed", "periodic_stalls", "slow_steps", "rank_late_over_run"]
    assert [change.step for change in run.monitor.changes] == [6_000]
    assert len(run.monitor.curve.steps) == 400


def test_a_torn_log_and_a_foreign_one(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", own_times(3, 60))
    whole = (folder / "rank0.steps").read_bytes()
    (folder / "rank0.steps").write_bytes(whole[:-100])
    (folder / "rank2.steps").write_bytes(b"something else")
    (run,) = perfkit.analyze(folder).runs
    assert run.monitor is not None
    assert run.monitor.ranks == 2
    assert run.monitor.world_size == 3
    assert run.monitor.steps == 60
    (finding,) = [one for one in run.findings if one.code == "monitor_log_unread"]
    assert "rank2.steps is not a step log" in finding.message


def test_a_folder_whose_only_log_is_foreign(tmp_path: Path) -> None:
    (tmp_path / "rank0.steps").write_bytes(b"something else")
    with pytest.raises(TraceError, match="is not a step log"):
        perfkit.analyze(tmp_path)


def test_the_answer_the_tables_and_the_page(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "long-run", eventful_times(2))
    page, record = tmp_path / "page.html", tmp_path / "report.json"
    answer = run_command("analyze", str(folder))
    assert answer.returncode == 0, answer.stderr
    text = " ".join(answer.stdout.split())
    assert "Whole run: from step 6,000 on a step takes 62.0 ms instead of" in text
    assert "rank 1 became slower; every 500th step takes 300 ms longer, from step 500 to step 9,500 (19 times)" in text
    tables = run_command("analyze", str(folder), "--section", "monitor")
    assert "every 500 steps, 19 times" in tables.stdout
    assert "slow step" in tables.stdout
    run_command("analyze", str(folder), "-o", str(page), "-o", str(record))
    assert "Step time over the whole run" in page.read_text()
    assert json.loads(record.read_text())["runs"][0]["monitor"]["stalls"][0]["period"] == 500
    assert perfkit.load_report(record).runs[0].monitor is not None


def test_a_quiet_run_says_so(tmp_path: Path) -> None:
    answer = run_command("analyze", str(write_run(tmp_path / "quiet", own_times(2, 500))))
    text = " ".join(answer.stdout.split())
    assert "Whole run: over 500 steps the step time does not change for good, and none stalls; no rank is late" in text
    assert "warning" not in text


def _quietly(folder: Path) -> str:
    (run,) = perfkit.analyze(folder).runs
    return whole_run(run)


@pytest.mark.parametrize("slow", ["every third", "one in eight"])
def test_frequent_long_steps_are_told(tmp_path: Path, slow: str) -> None:
    own = own_times(2, 1_000)
    at = np.arange(1_000) % 3 == 2 if slow == "every third" else np.random.default_rng(4).random(1_000) < 0.125
    own[:, at] *= 5
    text = _quietly(write_run(tmp_path, own))
    assert re.search(r"for good; (33.\d|1\d\.\d) % of the steps take more than 1.5x the usual time \(4\.\dx in", text)
    assert "stalls" not in text


def test_few_long_steps_are_no_matter_of_all(tmp_path: Path) -> None:
    own = own_times(2, 1_000)
    own[:, np.random.default_rng(4).random(1_000) < 0.03] *= 1.7
    assert "1.5x" not in _quietly(write_run(tmp_path, own))


def _damage(path: Path, *records: int) -> None:
    data = bytearray(path.read_bytes())
    for number in records:
        data[HEADER_BYTES + number * STEP_DTYPE.itemsize + 20] ^= 1
    path.write_bytes(data)


def test_damaged_records_are_told(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", own_times(2, 500))
    assert "damaged" not in _quietly(folder)
    _damage(folder / "rank1.steps", 100, 200, 201)
    (run,) = perfkit.analyze(folder).runs
    assert [(one.code, one.message) for one in run.findings] == [
        ("monitor_log_unread", "rank1.steps: 3 damaged records were left out")
    ]
    assert whole_run(run).endswith("no rank is late beyond chance; rank1.steps: 3 damaged records were left out")
    _damage(folder / "rank0.steps", *range(500))
    (run,) = perfkit.analyze(folder).runs
    assert "rank0.steps (and 1 more): 503 damaged records were left out" in whole_run(run)


def test_a_log_that_ends_early_is_told(tmp_path: Path) -> None:
    own = own_times(4, 1_000)
    folder = write_run(tmp_path / "run", own)
    write_log(folder, 1, 4, records(own, 1)[:992])
    assert _quietly(folder).endswith("no rank is late beyond chance")
    write_log(folder, 2, 4, records(own, 2)[:400])
    assert _quietly(folder).endswith(
        "no rank is late beyond chance in the steps that it has logged; rank 2's log ends at step 399 of 999"
    )
    write_log(folder, 0, 4, roll_up(records(own, 0)[:800]))
    assert _quietly(folder).endswith("the logs of ranks 0, 2 end before step 999, the first, of rank 2, at step 399")
    (run,) = perfkit.analyze(folder).runs
    assert [(one.code, one.rank) for one in run.findings] == [("monitor_log_ends_early", None)]


def test_a_loss_that_is_no_number_any_more_is_told(tmp_path: Path) -> None:
    own = own_times(2, 200)
    for rank in range(2):
        made = records(own, rank)
        made["flags"], made["loss"] = LOSS_GIVEN, 0.5
        if rank:
            made["loss"][120:] = np.nan
        write_log(tmp_path, rank, 2, made)
    (run,) = perfkit.analyze(tmp_path).runs
    assert [(one.code, one.message) for one in run.findings] == [
        ("loss_not_a_number", "from step 120 on the loss is not a number (NaN or infinite) (first on rank 1)")
    ]
    follower = RunFollower(tmp_path)
    follower.read()
    assert find_events(follower) == [run.findings[0].message]


def test_a_change_that_another_follows_is_not_for_good(tmp_path: Path) -> None:
    own = own_times(1, 1_000)
    own[:, 400:500] *= 1.5
    (run,) = perfkit.analyze(write_run(tmp_path / "run", own)).runs
    first, second = (one.message for one in run.findings if one.code == "step_time_changed")
    assert first.startswith("from step 400 to step 499 a step takes 76.")
    assert second.startswith("from step 500 on a step takes 51.")
    table = events(run, 5)
    assert table is not None
    assert [row[1].text for row in table.rows] == ["slower to step 499", "faster for good"]


def test_stalls_are_denied_only_of_steps_that_are_known_one_by_one(tmp_path: Path) -> None:
    made = records(own_times(1, 800), 0)
    made["pause_ns"][99:600:100] = 1_000_000_000
    write_log(tmp_path, 0, 1, np.concatenate([roll_up(roll_up(roll_up(made[:600]))), made[600:]]))
    assert _quietly(tmp_path).endswith("for good, and none of the 200 that were not rolled up stalls")
    write_log(tmp_path, 0, 1, roll_up(made))
    assert _quietly(tmp_path).endswith("for good")


def test_a_sparse_file_ends_at_the_limit_of_records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("perfkit.pipeline.monitor.MOST_RECORDS", 5_000)
    path = write_run(tmp_path / "run", own_times(1, 100)) / "rank0.steps"
    os.truncate(path, HEADER_BYTES + 200_000 * STEP_DTYPE.itemsize)
    (run,) = perfkit.analyze(path.parent).runs
    messages = [one.message for one in run.findings if one.code == "monitor_log_unread"]
    assert messages == [
        "rank0.steps: only the first 5,000 records were read",
        "rank0.steps: 4,900 damaged records were left out",
    ]
    assert len(perfkit.steps(path.parent)) == 100
