"""Which line of a Python stack is that of the program."""

from pathlib import Path

import pytest

import perfkit
from perfkit.engine.hangs.places import program_frame
from perfkit.records.hang import Frame

PACKAGE = Path(perfkit.__file__).parent
TRAINING = PACKAGE / "record" / "training"
TORCH = Frame(function="all_reduce", file="/venv/lib/python3.12/site-packages/torch/distributed/x.py", line=1)
SCRIPT = Frame(function="main", file="/home/somebody/perfkit/train.py", line=10)
START = Frame(function="_execute", file=str(PACKAGE / "record" / "script" / "runner.py"), line=1)


def place_in(*files: str | Path) -> Frame | None:
    """Return the place of a program whose stack has these files between torch's call and the start by perfkit."""
    return program_frame([TORCH, *(Frame(function="hooked", file=str(file), line=41) for file in files), START])


def test_no_file_of_perfkits_is_the_place_of_a_script() -> None:
    files = [path for path in PACKAGE.rglob("*.py") if TRAINING not in path.parents]
    assert PACKAGE / "record" / "autograd_engine.py" in files
    for path in [*files, PACKAGE / "record" / "added_later.py", Path("/elsewhere/perfkit/record/added_later.py")]:
        hooked = Frame(function="hooked", file=str(path), line=41)
        assert program_frame([TORCH, hooked, SCRIPT, START]) == SCRIPT, path


@pytest.mark.parametrize("file", [PACKAGE.parent / "perfkit_workloads" / "gpt.py", TRAINING / "trainer.py"])
def test_a_workload_of_perfkits_is_a_program(file: Path) -> None:
    place = place_in(file)
    assert place is not None
    assert place.file == str(file)


def test_without_a_program_the_innermost_function_is_named() -> None:
    assert place_in(PACKAGE / "record" / "autograd_engine.py") == TORCH
    assert program_frame([]) is None
