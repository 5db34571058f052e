"""The commands of the README, run as written in a copy of the files of a clone."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from perfkit.cli import COMMANDS

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```(\w+)\n(.*?)```", README, re.DOTALL)
SHELL = "\n".join(body for language, body in BLOCKS if language == "bash")
COMMAND_LINES = [line.split("  #")[0].strip() for line in SHELL.splitlines() if line]
RUN_BY_CI = ("make ",)
"""Run by CI itself."""


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("clone")
    shutil.copy(ROOT / "README.md", folder)
    for name in ("traces", "reports"):
        listed = subprocess.run(["git", "ls-files", name], cwd=ROOT, capture_output=True, text=True, check=True).stdout
        for file in listed.split():
            (folder / file).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / file, folder / file)
    return folder


@pytest.mark.slow  # a dozen trainings of a few seconds each: a user's first five minutes
@pytest.mark.parametrize("line", [line for line in COMMAND_LINES if not line.startswith(RUN_BY_CI)])
def test_a_command_of_the_readme_works(clone: Path, line: str) -> None:
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-c", line], cwd=clone, env=os.environ | {"PATH": path}, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr


def test_every_command_is_in_the_readme() -> None:
    assert [name for name in COMMANDS if f"perfkit {name}" not in README] == []


def test_the_python_of_the_readme_compiles() -> None:
    blocks = [body for language, body in BLOCKS if language == "python"]
    assert blocks
    for body in blocks:
        compile(body, "README.md", "exec")
