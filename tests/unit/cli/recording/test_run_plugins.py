"""Workloads and sources of other packages on the command line, working and broken."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.plugin_package import install
from tests.support.processes.launching import LIMIT_S


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    install(folder)
    return folder


def python(installed: Path, code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", f"import sys\nfrom perfkit.cli import main\n{code}"],
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
        env={**os.environ, "PYTHONPATH": str(installed), "COLUMNS": "80"},
    )


def test_names_are_listed_without_importing_a_plugin(installed: Path) -> None:
    done = python(installed, "main(['run', '--help'])\nsys.exit('pk_plugins' in sys.modules)")
    assert (done.returncode, done.stderr) == (0, "")
    assert "`perfkit run mlp --help` lists its options." in done.stdout
    assert "broken" in done.stdout


def test_a_plugin_has_options_without_torch(installed: Path) -> None:
    done = python(
        installed, "assert main(['run', 'mlp', '--source', 'ram', '--help-all']) == 0\nsys.exit('torch' in sys.modules)"
    )
    assert (done.returncode, done.stderr) == (0, "")
    words = " ".join(done.stdout.split())
    for part in (
        "Usage: perfkit run mlp",
        "Regression with one hidden layer.",
        "--preset <default|wide>",
        "--width <int> Features of the hidden layer. [default: 8; x>=1]",
        "--source <memory|hdf5|safetensors|pt|bin|arrow|broken|ram>",
        "Input (ram): --ram-banks <int> Banks of memory. [default: 1; x>=1]",
    ):
        assert part in words


def test_a_plugin_source_brings_its_options(installed: Path, tmp_path: Path) -> None:
    file = tmp_path / "run.toml"
    file.write_text('source = "ram"\nram_banks = 2\n')
    done = python(
        installed,
        f"""
from perfkit.cli.recording.run_options import parse_job
jobs = [parse_job(["mlp", *options]) for options in (
    ["--source=ram", "--ram-banks", "2"], ["--config", {str(file)!r}], ["--config={file}", "--ram-banks=3"], [],
)]
print([job.effective.get("ram_banks") for job in jobs], jobs[0].source.config.ram_banks)
""",
    )
    assert (done.stdout, done.stderr) == ("[2, 2, 3, None] 2\n", "")


ERRORS: list[tuple[list[str], int, str]] = [
    (["broken"], 1, "workload 'broken' of pk_plugins 1.2 cannot be loaded: ZeroDivisionError: division by zero"),
    (["source"], 1, "workload 'source' of pk_plugins 1.2 is not a subclass of perfkit_workloads.base.Workload"),
    (["misnamed"], 1, "workload 'misnamed' of pk_plugins 1.2 has the name 'mlp'"),
    (["greedy"], 1, "option seed is defined twice, by RunConfig and Greedy.Config: rename it in the plug-in"),
    (["incomplete"], 1, "pk_plugins 1.2 does not define PRESETS, DEFAULT_PRESET, data_spec, generate, layers"),
    (["gpt", "--source", "broken"], 1, "source 'broken' of pk_plugins 1.2 cannot be loaded: ZeroDivisionError"),
    (["gpt", "--ram-banks", "2"], 2, "No such option: --ram-banks"),
    (["gpt", "--source", "ram", "--ram-banks", "0"], 2, "--ram-banks = 0: expected a whole number of at least 1"),
    (
        ["gpt", "--source", "tape"],
        2,
        "'tape' is not one of 'memory', 'hdf5', 'safetensors', 'pt', 'bin', 'arrow', 'broken', 'ram'",
    ),
]
OUTCOMES = """
import contextlib, io, json
outcomes = []
for command in {commands}:
    with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.redirect_stderr(io.StringIO()) as err:
        code = main(["run", *command])
    outcomes.append([code, out.getvalue(), err.getvalue()])
print(json.dumps(outcomes))
"""


@pytest.fixture(scope="module")
def outcomes(installed: Path) -> dict[str, list[Any]]:
    """Return the exit code, the output and the messages of each command: one process runs them all."""
    commands = [command for command, _, _ in ERRORS]
    done = python(installed, OUTCOMES.format(commands=commands))
    assert (done.returncode, done.stderr) == (0, "")
    return {str(command): found for command, found in zip(commands, json.loads(done.stdout), strict=True)}


@pytest.mark.parametrize(("command", "code", "error"), ERRORS)
def test_errors_of_plugins_are_one_line(
    outcomes: dict[str, list[Any]], command: list[str], code: int, error: str
) -> None:
    *ended, message = outcomes[str(command)]
    assert ended == [code, ""]
    assert message.count("\n") == 1
    assert error in message


def test_an_error_of_a_plugin_ends_the_process_with_its_code(installed: Path) -> None:
    command, code, error = ERRORS[0]
    done = python(installed, f"sys.exit(main({['run', *command]}))")
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (code, "", 1)
    assert error in done.stderr


def test_a_broken_plugin_costs_no_other_workload_anything(installed: Path) -> None:
    done = python(installed, "sys.exit(main(['run', 'gpt', '--help']))")
    assert (done.returncode, done.stderr) == (0, "")


def test_a_sweep_resolves_options_of_plugins(installed: Path) -> None:
    code = "sys.exit(main(['sweep', 'mlp', '--source', 'memory,ram', '--launcher', 'perfkit', '--dry-run']))"
    done = python(installed, code)
    assert (done.returncode, len(done.stdout.splitlines())) == (0, 4), done.stderr
