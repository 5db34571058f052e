"""The live view: what it reads, and what it draws."""

import os
import re
import time
from io import StringIO
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from perfkit.records.manifest import MANIFEST_VERSION
from perfkit.records.monitor import KIND_NUMBERS
from perfkit.storage.step_log.follow import RunFollower
from perfkit.storage.step_log.reader import roll_up
from perfkit.tools.watch.frame import SORTS, draw, sparkline
from perfkit.tools.watch.loop import Watch
from perfkit.tools.watch.view import find_events, view
from tests.support.monitor.made_runs import (
    COLLECTIVE_NS,
    eventful_times,
    own_times,
    records,
    with_checks,
    write_log,
    write_run,
)
from tests.support.processes.launching import LIMIT_S
from tests.support.processes.left_runs import mark_rank_0


def _manifest(state: str, more: str = "", config: str = "{}", ranks: int = 1) -> str:
    return (
        f'{{"schema_version": {MANIFEST_VERSION}, "run": "r", "state": "{state}", "workload": "w", "source": "s", '
        f'"started_at": "t", "config": {config}, "versions": {{}}, "backend": null, "device": "cpu", {more}"world": '
        f'{{"world_size": {ranks}, "nodes": 1, "launcher": "none", "local_world_sizes": [{ranks}]}}}}'
    )


def _drawn(run: RunFollower, width: int = 80, height: int = 24, sort: str = "late", copies: int = 1) -> list[str]:
    run.read()
    console = Console(file=StringIO(), width=width, height=height, highlight=False, markup=False)
    shown = view(run, find_events(run))
    console.print(draw([shown] * copies, width, height, sort, paused=False, keys=True))
    assert isinstance(console.file, StringIO)
    return console.file.getvalue().splitlines()


@pytest.mark.parametrize(("width", "height"), [(80, 24), (200, 60), (40, 10), (80, 3)])
@pytest.mark.parametrize("ranks", [1, 2, 60])
def test_a_frame_fits_the_terminal(tmp_path: Path, width: int, height: int, ranks: int) -> None:
    own = own_times(ranks, 80)
    own[-1] *= 1.4
    lines = _drawn(RunFollower(write_run(tmp_path, own)), width, height)
    assert len(lines) <= height
    assert max(map(len, lines)) <= width


def test_what_is_shown_of_a_run(tmp_path: Path) -> None:
    lines = _drawn(RunFollower(write_run(tmp_path / "my-run", eventful_times(4))))
    text = "\n".join(lines)
    assert re.match(r"my-run  running  4 ranks  step 9,999 ─+$", lines[0])
    assert lines[1].startswith("step 61.")
    assert "ranks ···▅" in text
    assert re.search(r"rank +step +step time +late by.*\n +3 +9,999 +61\.\d ms +9\.\d+ ms", text)
    assert "! from step 6,000 on a step takes 62.0 ms instead of 53.0 ms" in text
    assert "! every 500th step takes 300 ms longer" in text
    assert lines[-1].startswith("q quit   p pause   s sort")


@pytest.mark.parametrize("number", ["1" + "0" * 400, str(2**53), "-4"])
@pytest.mark.parametrize("field", ["steps", "batch_size"])
def test_a_number_in_the_manifest_that_cannot_be_is_not_shown(tmp_path: Path, field: str, number: str) -> None:
    numbers = {"steps": "500", "batch_size": "8"} | {field: number}
    text = _manifest("running", f'"batch_size": {numbers["batch_size"]}, ', f'{{"steps": {numbers["steps"]}}}')
    (tmp_path / "run.json").write_text(text)
    run = RunFollower(write_run(tmp_path, own_times(1, 80)))
    lines = _drawn(run)
    assert ("step 79 of 500 " in lines[0]) == (field == "batch_size")
    assert ("samples/s" in lines[1]) == (field == "steps")


def test_a_run_that_ended_without_the_monitor_is_not_waited_for(tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text(_manifest("completed"))
    assert "  completed without --monitor" in _drawn(RunFollower(tmp_path))[0]


def test_why_a_run_failed_is_told_to_the_end(tmp_path: Path) -> None:
    message = f"no step has ended for 90.0 s: {'rank 0 waits in all_reduce; ' * 5}rank 1 is in `load` at data.py:32"
    failure = f'"failure": {{"rank": 0, "message": "{message}"}}, '
    (tmp_path / "run.json").write_text(_manifest("failed", failure, ranks=2))
    lines = _drawn(RunFollower(write_run(tmp_path, own_times(2, 80))))
    assert "  failed  2 ranks  step 79 ─" in lines[0]
    assert lines[1].startswith("rank 0: no step has ended for 90.0 s: rank 0 waits")
    assert "rank 1 is in `load` at data.py:32" in " ".join(" ".join(lines).split())


def test_a_healthy_run_has_nothing_to_say(tmp_path: Path) -> None:
    text = "\n".join(_drawn(RunFollower(write_run(tmp_path, own_times(4, 300)))))
    assert "ranks ····\n" in text
    assert "nothing unusual in the last 300 steps" in text
    assert "!" not in text


def test_of_steps_that_were_rolled_up_nothing_is_claimed(tmp_path: Path) -> None:
    for rank in range(2):
        made = records(own_times(2, 300), rank)
        write_log(tmp_path, rank, 2, np.concatenate([roll_up(made[:200]), made[200:]]), generation=1)
    assert "nothing unusual in the last 100 steps" in "\n".join(_drawn(RunFollower(tmp_path)))


def test_the_legend_has_all_parts_at_80_columns(tmp_path: Path) -> None:
    for rank in range(2):
        made = records(own_times(2, 100), rank)
        made["forward_ns"], made["backward_ns"], made["optimizer_ns"] = 15e6, 25e6, 2e6
        write_log(tmp_path, rank, 2, made)
    text = "\n".join(_drawn(RunFollower(tmp_path)))
    for part in ("█ forward", "▇ backward", "▆ optimizer", "▓ collectives", "▒ data", "░ other"):
        assert part in text


def test_a_cold_step_does_not_outweigh_the_parts_of_the_others(tmp_path: Path) -> None:
    own = own_times(2, 20)
    wall = own.max(axis=0) + COLLECTIVE_NS
    wall[0] = 12e9
    for rank in range(2):
        made = records(own, rank, wall)
        made["kind"][0] = KIND_NUMBERS["cold"]
        made["backward_ns"][1:] = made["step_ns"][1:] - made["data_ns"][1:]
        write_log(tmp_path, rank, 2, made)
    shown = RunFollower(tmp_path)
    shown.read()
    assert view(shown, []).parts["other"] == pytest.approx(0, abs=1e-3)


def test_logs_without_step_times_show_none_and_claim_nothing(tmp_path: Path) -> None:
    own = own_times(2, 100)
    for rank in range(2):
        made = records(own, rank)
        made["step_ns"] = made["longest_ns"] = -1
        write_log(tmp_path, rank, 2, made)
    text = "\n".join(_drawn(RunFollower(tmp_path)))
    assert "step –" in text
    assert "nan" not in text
    assert "nothing unusual" not in text


def test_frequent_long_steps_are_unusual(tmp_path: Path) -> None:
    own = own_times(2, 300)
    own[:, ::3] *= 5
    text = "\n".join(_drawn(RunFollower(write_run(tmp_path, own))))
    assert re.search(r"! 3\d\.\d % of the steps take more than 1.5x the usual time", text)
    assert "nothing unusual" not in text


@pytest.mark.slow
def test_many_ranks_are_grouped_and_the_latest_shows(tmp_path: Path) -> None:
    own = own_times(1024, 40)
    own[700] *= 1.8
    lines = _drawn(RunFollower(write_run(tmp_path, own)))
    strip = "".join(line[6:] for line in lines[4:6])
    assert "a mark is 7 ranks" in "\n".join(lines)
    assert strip.index("█") == 700 // 7
    assert strip.count("█") == 1
    assert re.search(r"^ +700 ", "\n".join(lines), re.MULTILINE)


def test_a_late_rank_stays_late_while_the_logs_of_others_are_read_further(tmp_path: Path) -> None:
    own = own_times(8, 200)
    own[2] *= 1.4
    write_run(tmp_path, own)
    for rank in range(5):
        write_log(tmp_path, rank, 8, records(own, rank)[:175])
    first = next(line for line in _drawn(RunFollower(tmp_path)) if re.match(r" +\d+ +\d+ ", line))
    assert re.match(r" +2 +174 +7\d\.\d ms +(19|2\d)(\.\d)? ms", first), first


def test_a_silent_rank_is_named(tmp_path: Path) -> None:
    own = own_times(3, 200)
    write_run(tmp_path, own)
    write_log(tmp_path, 1, 3, records(own, 1)[:100])
    text = "\n".join(_drawn(RunFollower(tmp_path)))
    assert "ranks ·x·" in text
    assert "silent for 32 steps or more: rank 1" in text


@pytest.mark.parametrize(
    ("rank_0", "silent_s", "killed"),
    [("ended", 60, True), ("ended", 0, False), ("running", 60, False), ("of another host", 60, False)],
)
def test_a_run_that_was_killed_is_over(tmp_path: Path, rank_0: str, silent_s: float, killed: bool) -> None:
    write_run(tmp_path, own_times(2, 40))
    mark_rank_0(tmp_path, rank_0)
    for log in tmp_path.glob("rank*.steps"):
        os.utime(log, (time.time() - silent_s,) * 2)
    header = _drawn(RunFollower(tmp_path))[0]
    assert ("over: rank 0 was killed" in header) == killed
    assert ("no step for" in header) == (not killed and silent_s > 0)


def test_only_what_was_appended_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own = own_times(1, 120)
    made = records(own, 0)
    path = write_log(tmp_path, 0, 1, made[:100])
    run = RunFollower(tmp_path)
    assert run.read()
    log = run.logs[0]
    assert log.records["step"].tolist() == list(range(100))
    assert not run.read()
    with path.open("ab") as stream:
        stream.write(with_checks(made[100:])[:-50])  # the last record is torn
    assert run.read()
    assert log.records["step"].tolist() == list(range(119))
    with path.open("ab") as stream:
        stream.write(with_checks(made[100:])[-50:])
    assert run.read()
    assert log.records["step"].tolist() == list(range(120))


def test_a_log_that_is_rolled_up_meanwhile_is_read_anew(tmp_path: Path) -> None:
    made = records(own_times(1, 100), 0)
    write_log(tmp_path, 0, 1, made)
    run = RunFollower(tmp_path)
    run.read()
    write_log(tmp_path, 0, 1, np.concatenate([roll_up(made[:60]), made[60:]]), generation=1)
    assert run.read()
    assert run.logs[0].records["steps"].tolist() == [2] * 30 + [1] * 40


def test_of_a_long_log_only_the_newest_steps_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("perfkit.storage.step_log.follow._LONGEST", 64)
    write_run(tmp_path, own_times(2, 500))
    run = RunFollower(tmp_path)
    run.read()
    assert [log.records["step"][0] for log in run.logs.values()] == [436, 436]


def test_a_run_that_has_not_begun_waits(tmp_path: Path) -> None:
    lines = _drawn(RunFollower(tmp_path))
    assert "waiting for logs of the monitor" in lines[0]


def test_a_foreign_log_does_not_end_the_view(tmp_path: Path) -> None:
    write_run(tmp_path, own_times(2, 60))
    (tmp_path / "rank2.steps").write_bytes(b"\x1b[2Jsomething")
    text = "\n".join(_drawn(RunFollower(tmp_path)))
    assert "2 ranks" in text
    assert "! rank2.steps is not a step log" in text
    assert "nothing unusual" not in text
    assert "\x1b[2J" not in text


def test_logs_none_of_which_can_be_read(tmp_path: Path) -> None:
    for rank in range(3):
        (tmp_path / f"rank{rank}.steps").write_bytes(b"\x1b[2Jsomething")
    (line,) = [line for line in _drawn(RunFollower(tmp_path), width=200) if "rank0" in line]
    assert "rank0.steps is not a step log" in line
    assert "(and 2 more logs)" in line


def test_a_log_that_becomes_readable_is_no_problem_any_more(tmp_path: Path) -> None:
    (tmp_path / "rank0.steps").write_bytes(b"")
    run = RunFollower(tmp_path)
    assert "rank0.steps is not a step log" in _drawn(run)[0]
    write_run(tmp_path, own_times(1, 60))
    assert "step log" not in "\n".join(_drawn(run))


def test_damaged_records_are_counted(tmp_path: Path) -> None:
    path = write_run(tmp_path, own_times(2, 100)) / "rank1.steps"
    data = bytearray(path.read_bytes())
    data[-20] ^= 1
    path.write_bytes(data)
    run = RunFollower(tmp_path)
    for _ in range(2):
        assert "! 1 damaged record was left out" in "\n".join(_drawn(run))
    with path.open("ab") as stream:
        stream.write(bytes(data[-400:]) * 3)
    text = "\n".join(_drawn(run))
    assert "damaged records were left out" in text
    assert "nothing unusual" not in text


@pytest.mark.parametrize("sort", SORTS)
def test_orders_of_the_table(tmp_path: Path, sort: str) -> None:
    own = own_times(3, 60)
    own[1] *= 1.5
    made = [records(own, rank) for rank in range(3)]
    for rank, one in enumerate(made):
        one["data_ns"] = 1_000_000 * (rank + 1)
        one["rss_bytes"] = 1_000 * (3 - rank)
        write_log(tmp_path, rank, 3, one[: 60 - rank])
    first = {"late": 1, "data": 2, "memory": 0, "step": 2, "rank": 0}[sort]
    lines = _drawn(RunFollower(tmp_path), sort=sort)
    header = next(number for number, line in enumerate(lines) if line.lstrip().startswith("rank "))
    assert lines[header + 1].split()[0] == str(first)


def test_keys(tmp_path: Path) -> None:
    watch = Watch([write_run(tmp_path, own_times(1, 60))], "late")
    paused = []
    for _ in range(2):
        assert watch.press("p")
        paused.append(watch.paused)
    assert paused == [True, False]
    for order in [*list(SORTS)[1:], "late"]:
        watch.press("s")
        assert watch.sort == order
    assert not watch.press("q")


def _frame(watch: Watch) -> str:
    watch._next_read = watch._next_events = 0.0
    console = Console(file=StringIO(), width=200, highlight=False, markup=False)
    watch.show(console)
    assert isinstance(console.file, StringIO)
    return console.file.getvalue()


def _end(folder: Path, state: str, written_s: float) -> None:
    (folder / "run.json").write_text(_manifest(state))
    os.utime(folder / "rank0.steps", (written_s, written_s))


def test_a_folder_of_runs_is_followed_from_one_that_ends_to_the_next(tmp_path: Path) -> None:
    watch = Watch([tmp_path], "late")
    assert "waiting for logs" in _frame(watch)
    first = write_run(tmp_path / "first", own_times(1, 60))
    shown = _frame(watch)
    assert shown.startswith("first  running")
    assert "perfkit analyze" not in shown
    second = write_run(tmp_path / "second", own_times(1, 60))
    assert _frame(watch).startswith("first  running")  # not away from a run that trains
    second.rename(tmp_path.parent / f"{tmp_path.name}-apart")
    _end(first, "completed", time.time() - 30)
    watch._followed[0].run._scanned = 0.0
    shown = _frame(watch)
    assert shown.startswith("first  completed")
    assert f"where its time went: perfkit analyze {first}\na run that starts in {tmp_path} is shown next\n" in shown
    (tmp_path.parent / f"{tmp_path.name}-apart").rename(second)
    shown = _frame(watch)
    assert shown.startswith("second  running")
    assert f"\nfirst: completed; where its time went: perfkit analyze {first}\n" in shown


def test_of_a_single_run_that_failed_nothing_else_is_waited_for(tmp_path: Path) -> None:
    run = write_run(tmp_path / "one", own_times(1, 60))
    _end(run, "failed", time.time())
    write_run(tmp_path / "other", own_times(1, 60))
    watch = Watch([run], "late")
    _frame(watch)
    shown = _frame(watch)
    assert shown.startswith("one  failed")
    assert f"where its time went: perfkit analyze {run}\n" in shown
    assert "is shown next" not in shown


def test_a_sparkline_shows_a_rise_beside_an_outlier() -> None:
    values = np.full(80, 50.0)
    values[40:] = 60
    values[20] = 1_000
    bars = sparkline(values, 40).plain
    assert len(bars) == 40
    assert bars[10] == "█"
    assert bars[5] < bars[30] < bars[10]


def test_a_folder_that_vanished_is_no_end(tmp_path: Path) -> None:
    run = RunFollower(tmp_path / "gone")
    run.read()
    assert "cannot read" in _drawn(run)[0]


def test_of_several_runs_no_trace_is_taken(tmp_path: Path) -> None:
    watch = Watch([write_run(tmp_path / name, own_times(1, 60)) for name in ("first", "second")], "late")
    assert watch.press("c")
    assert watch._trace is None


@pytest.mark.slow
def test_what_hinders_a_trace_is_shown(tmp_path: Path) -> None:
    watch = Watch([write_run(tmp_path, own_times(1, 60))], "late")
    assert watch.press("c")
    assert watch._trace is not None
    watch._trace._process.wait(timeout=LIMIT_S)
    assert "run.json" in watch._trace.message()
    watch.close()
    assert watch._trace is None
