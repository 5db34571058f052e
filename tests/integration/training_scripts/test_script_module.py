"""`perfkit run -m package.module`: as `python -m` runs it."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.processes.launching import PYTHON, execute

SHOW = """
import os, sys
from .values import value
names = ("__name__", "__package__", "__file__", "__cached__", "__doc__", "__annotations__")
print(sorted(globals()), {name: globals().get(name) for name in names}, __spec__.name, type(__loader__).__name__)
print(sys.argv, sys.path[0], value, sys.modules["__main__"].__dict__ is globals())
"""


@pytest.fixture
def package(tmp_path: Path) -> Path:
    folder = tmp_path / "package"
    folder.mkdir()
    (folder / "__init__.py").write_text("import sys\nprint(sys.argv[0], sys.path[0])\n")
    (folder / "values.py").write_text("value = 3\n")
    for name in ("train.py", "__main__.py"):
        (folder / name).write_text(SHOW)
    (folder / "broken.py").write_text("from . import missing\n")
    return tmp_path


def run(command: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    return execute(command, stub_torch=True, cwd=folder)


@pytest.mark.parametrize("name", ["package.train", "package", "package.nothing", "nothing", "package.broken"])
def test_a_module_behaves_as_by_itself(name: str, package: Path) -> None:
    alone = run([sys.executable, "-m", name, "--width", "4"], package)
    recorded = run([*PYTHON, "run", "-m", name, "--", "--width", "4"], package)
    assert (recorded.returncode, recorded.stdout) == (alone.returncode, alone.stdout), recorded.stderr
    errors = [line for line in recorded.stderr.splitlines() if not line.startswith("perfkit: ")]
    assert errors[-1:] == alone.stderr.splitlines()[-1:]
    assert "perfkit/record" not in recorded.stderr
    assert (f"-m {name} has not imported torch" in recorded.stderr) == (alone.returncode == 0)


def test_each_rank_runs_the_module(package: Path) -> None:
    done = run([*PYTHON, "run", "-m", "package.train", "-n", "2", "--", "--width", "4"], package)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("'__package__': 'package'") == 2
