"""Every command says what it wrote to a path that the user named, and how large it is; never on stdout."""

import os
import threading
from importlib import import_module
from pathlib import Path

import pytest
from typer.main import get_command

from perfkit.base.formatting import size
from perfkit.cli import COMMANDS, main
from tests.support.documentation import ROOT

HDF5, MEMORY = (str(ROOT / "traces" / name) for name in ("sample-hdf5", "sample-memory"))
ARGUMENTS = {
    "analyze": [HDF5],
    "compare": [HDF5, MEMORY],
    "history": [HDF5, MEMORY],
    "whatif": [HDF5, "input=0"],
    "merge": [HDF5, "--steps", "3"],
    "stacks": [HDF5],
    "plan": ["gpt", "--preset", "tiny", "--ranks", "2"],
}
SUFFIXES = {"analyze": (".html", ".json"), "merge": (".pftrace",), "stacks": (".collapsed",)}
ELSEWHERE = {"peaks", "diagnose", "hta", "input", "collectives"}
"""Those that measure, need dumps or another package: `peaks` has its own test, the others write as `analyze` does."""


def test_all_commands_that_write_are_tried() -> None:
    commands = {}
    for name, row in COMMANDS.items():
        module, _, attribute = row.target.partition(":")
        commands[name] = get_command(getattr(import_module(module), attribute)).params
    writing = {name for name, parameters in commands.items() if any("-o" in one.opts for one in parameters)}
    assert writing == set(ARGUMENTS) | ELSEWHERE


@pytest.mark.parametrize("command", ARGUMENTS)
def test_each_file_is_named_with_its_size(command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = [tmp_path / f"out{suffix}" for suffix in SUFFIXES.get(command, (".json",))]
    assert main([command, *ARGUMENTS[command], *(part for file in files for part in ("-o", str(file)))]) == 0
    printed, status = capsys.readouterr()
    for file in files:
        assert f"Wrote {file} ({size(file.stat().st_size)})" in status
    assert "Wrote" not in printed
    assert str(tmp_path) not in printed


def test_a_pipe_is_not_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pipe = tmp_path / "out.json"
    os.mkfifo(pipe)
    read: list[bytes] = []
    reader = threading.Thread(target=lambda: read.append(pipe.read_bytes()))
    reader.start()
    assert main(["analyze", HDF5, "-o", str(pipe)]) == 0
    reader.join()
    assert read[0].startswith(b"{")
    assert "Wrote" not in capsys.readouterr().err
