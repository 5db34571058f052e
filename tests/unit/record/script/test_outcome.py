"""The last line of a recorded script names its folder as the user would type it."""

import gzip
from pathlib import Path

import pytest

from perfkit.options.script import ScriptConfig
from perfkit.record.script import outcome
from perfkit.record.script.outcome import OutcomeReporter


@pytest.mark.parametrize(("elsewhere", "shown"), [(False, "traces/mine"), (True, "{top}/traces/mine")])
def test_the_folder_is_named_as_given_while_the_working_directory_is_the_same(
    elsewhere: bool, shown: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "traces" / "mine"
    folder.mkdir(parents=True)
    (folder / "rank0.json.gz").write_bytes(gzip.compress(b"{}"))
    monkeypatch.chdir(tmp_path)
    reporter = OutcomeReporter("train.py", ScriptConfig(trace_dir="traces", report=False))
    if elsewhere:  # the script has changed it
        monkeypatch.chdir(folder)
    reporter.report_end(folder, "3 steps")
    where = shown.format(top=tmp_path)
    assert f"train.py: 3 steps; to see where the time went: perfkit analyze {where}\n" in capfd.readouterr().err


@pytest.mark.parametrize("answered", [True, False])
def test_the_command_to_analyse_a_run_is_printed_where_there_is_no_answer(
    answered: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / "rank0.json.gz").write_bytes(gzip.compress(b"{}"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(outcome, "print_answer", lambda *_: answered)
    reporter = OutcomeReporter("train.py", ScriptConfig(trace_dir="."))
    reporter.report_end(folder, "3 steps")
    first, *others = capfd.readouterr().err.splitlines()
    assert first == "perfkit: train.py: 3 steps, in mine"
    assert others == ([] if answered else ["perfkit: to see where the time went: perfkit analyze mine"])


def test_a_run_without_the_profiler_has_no_trace_to_miss(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    OutcomeReporter("train.py", ScriptConfig(trace_dir=str(tmp_path), profile=False)).report_end(tmp_path, "3 steps")
    assert capfd.readouterr().err == f"perfkit: train.py: 3 steps; their times: perfkit analyze {tmp_path}\n"
