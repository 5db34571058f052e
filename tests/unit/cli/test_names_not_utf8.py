"""Folders and files whose names are not UTF-8: a command takes them, or refuses them in one clear line."""

import os
import re
import shutil
from pathlib import Path

import pytest

from perfkit.cli import main
from perfkit.errors import StoreError
from perfkit.storage.run_folder import create_run_folder
from tests.support.processes.launching import ROOT

NAME = os.fsdecode(b"run\xff")
SAMPLE = ROOT / "traces" / "sample-hdf5"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder with a run of that name, and a trace of another program's, as the working directory."""
    shutil.copytree(SAMPLE, tmp_path / NAME)
    (tmp_path / "foreign").mkdir()
    shutil.copy(SAMPLE / "rank0.json.gz", tmp_path / "foreign" / f"{NAME}.json.gz")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    "arguments",
    [
        ["analyze", NAME],
        ["analyze", NAME, "--json"],
        ["analyze", NAME, "-o", f"{NAME}.html"],
        ["analyze", "foreign"],
        ["merge", NAME],
        ["compare", NAME, str(SAMPLE)],
        ["history", NAME, str(SAMPLE)],
        ["whatif", NAME, "input=0"],
        ["watch", NAME, "--once"],
        ["stacks", NAME, "-o", "stacks.txt"],
    ],
    ids=" ".join,
)
def test_it_is_taken(arguments: list[str], capfd: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) == 0
    printed = capfd.readouterr()
    assert "error" not in printed.err
    assert NAME not in printed.out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["capture", NAME], r"run\udcff: the run has completed: only coming steps can be captured"),
        (["diagnose", NAME], r"run\udcff has no record of a rank that can be read"),
        (["analyze", f"{NAME}2"], r"run\udcff2: no such file or folder"),
        (["run", "gpt", "--name", NAME], r"--name run\udcff: is not UTF-8, and run.json could not record it"),
        (["run", "gpt", "--trace-dir", NAME], r"--trace-dir run\udcff: is not UTF-8, and run.json could not record it"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_it_is_refused_in_one_line(arguments: list[str], message: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) in (1, 2)
    (line,) = capfd.readouterr().err.splitlines()
    assert line.startswith(f"perfkit: error: {message}")


def test_a_run_is_not_recorded_below_such_a_folder(folder: Path) -> None:
    with pytest.raises(StoreError, match=re.escape("the path is not UTF-8, as JSON requires; choose another folder")):
        create_run_folder(folder / NAME, "mine")
    assert not (folder / NAME / "mine").exists()
