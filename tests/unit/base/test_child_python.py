"""Child processes import nothing from a foreign working directory."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from perfkit.base.process import child_python
from tests.support.processes.launching import LIMIT_S, ROOT, environment

MODULES = ["contextlib", "perfkit", "torch", "msgspec", "typing"]


def test_nothing_is_imported_from_the_working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in MODULES:
        (tmp_path / f"{name}.py").write_text(f"open('{tmp_path}/owned', 'w')\nraise SystemExit(99)\n")
    monkeypatch.setattr(sys, "path", [str(Path(sys.executable).parent), *sys.path[1:]])  # as of the console script
    command = [*child_python("perfkit.__main__", "start"), "--version"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("perfkit, version ")
    assert not (tmp_path / "owned").exists()


def test_python_with_p_imports_nothing_from_there_either(tmp_path: Path) -> None:
    """What SECURITY.md says of a foreign working directory: `python -m` alone would."""
    run = tmp_path / "foreign"
    shutil.copytree(ROOT / "traces" / "sample-hdf5", run)
    for name in [*MODULES, "typer"]:
        (run / f"{name}.py").write_text(f"open('{tmp_path}/owned', 'w')\nraise SystemExit(99)\n")
    command = [sys.executable, "-P", "-m", "perfkit", "analyze", ".", "--no-cache"]
    done = subprocess.run(
        command,
        cwd=run,
        env=environment() | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert not (tmp_path / "owned").exists()


def test_no_child_is_started_as_a_module() -> None:
    """`python -m` searches the working directory first. Commands of a sweep are protected by their environment."""
    root = Path(str(sys.modules["perfkit"].__file__)).parent
    found = [
        path.relative_to(root).as_posix()
        for path in root.rglob("*.py")
        if 'sys.executable, "-m"' in path.read_text(encoding="utf-8")
    ]
    assert found == ["tools/sweep/job_scripts.py"]
