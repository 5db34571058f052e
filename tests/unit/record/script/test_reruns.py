"""Which commands run the script again, and are recorded."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from perfkit.record.script.child_processes import follow_reruns
from perfkit.record.script.module_run import ModuleName

SCRIPT = Path("somewhere/train.py")
PYTHON = sys.executable


def started(command: Any, script: str = str(SCRIPT), **options: Any) -> Any:
    seen = []

    def record(_process: Any, args: Any, *_positional: Any, **_named: Any) -> None:
        seen.append(args)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(subprocess.Popen, "__init__", record)
        follow_reruns(script, ["run", script, "--name", "mine"], "/runs")
        process = object.__new__(subprocess.Popen)
        subprocess.Popen.__init__(process, command, **options)
        assert process.args == command
        process._child_created = False  # type: ignore[attr-defined]  # so that it can be deleted
    return seen[0]


def test_the_script_itself_runs_under_perfkit_with_its_arguments() -> None:
    command = started([PYTHON, SCRIPT.absolute(), "--epochs", "2"], env=None)
    assert command[0] == PYTHON
    options = ["--name", "mine", "--trace-dir", "/runs"]
    assert command[-9:] == ["run", str(SCRIPT.absolute()), *options, "--", "--epochs", "2"]


def test_the_script_is_found_from_another_working_directory() -> None:
    assert str(SCRIPT.absolute()) in started([PYTHON, str(SCRIPT.absolute())], cwd="/elsewhere")


def test_a_module_too() -> None:
    name = ModuleName("package.train")
    assert started([PYTHON, "-m", "package.train", "x"], name)[-2:] == ["--", "x"]
    assert started([PYTHON, "-m", "package.serve"], name) == [PYTHON, "-m", "package.serve"]


@pytest.mark.parametrize(
    ("command", "options"),
    [
        ([PYTHON, "other.py"], {}),
        ([PYTHON, "-c", "pass"], {}),
        ([PYTHON], {}),
        (["python-elsewhere", str(SCRIPT)], {}),
        ([PYTHON.encode(), str(SCRIPT).encode()], {}),
        (f"{PYTHON} {SCRIPT}", {"shell": True}),
        ([PYTHON, str(SCRIPT)], {"executable": "/bin/true"}),
        ([PYTHON, str(SCRIPT)], {"cwd": "/elsewhere"}),
        ([PYTHON, str(SCRIPT)], {"env": {"PYTHONPATH": "/elsewhere"}}),
    ],
)
def test_other_commands_stay_as_they_are(command: Any, options: dict[str, Any]) -> None:
    assert started(command, **options) == command
