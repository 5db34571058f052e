"""The commands of the README and of docs/, run as written in a copy of the files of a clone."""

import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.documentation import ROOT, Block, blocks, commands, matches
from tests.support.processes.command import run_command
from tests.support.processes.launching import LIMIT_S

RUN_BY_CI = ("make ",)
"""Run by CI itself."""
SESSIONS = blocks("console")
"""Blocks of one command and what it prints."""


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


def typed(line: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a line of a page as a user of an 80-column terminal would; beside other tests, each rank with one thread."""
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    environment = os.environ | {"PATH": path, "COLUMNS": "80", "OMP_NUM_THREADS": "1"}
    return subprocess.run(
        ["bash", "-c", line], cwd=folder, env=environment, capture_output=True, text=True, timeout=2 * LIMIT_S
    )


@pytest.mark.slow
@pytest.mark.parametrize("block", SESSIONS, ids=[block.body.splitlines()[0] for block in SESSIONS])
def test_a_command_prints_what_its_page_shows(clone: Path, block: Block, request: pytest.FixtureRequest) -> None:
    first, shown = block.body.split("\n", 1)
    printed = typed(first.removeprefix("$ "), clone).stdout
    if request.config.getoption("--update-golden") and "...\n" not in shown:
        page = ROOT / block.page
        plain = "".join(f"{line.rstrip()}\n" for line in printed.splitlines())
        text = page.read_text(encoding="utf-8")
        page.write_text(text.replace(block.body, f"{first}\n{plain}"), encoding="utf-8")
        shown = plain
    assert matches(shown, printed), printed


READS = ("analyze", "compare", "data", "history", "merge", "plan", "stacks", "whatif")
"""Commands that start no processes of their own: they need no interpreter of their own either."""


def followed(line: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a line: in the shell, if it starts ranks or redirects its output."""
    program, command, *rest = shlex.split(line)
    if program == "perfkit" and command in READS and "processes" not in rest:
        return run_command(command, *rest, cwd=folder)
    return typed(line, folder)


@pytest.mark.slow  # a dozen trainings of a few seconds each: a user's first five minutes
@pytest.mark.usefixtures("shared_cache")  # as a user's, who reads each trace once
@pytest.mark.parametrize("line", [line for line in commands() if not line.startswith(RUN_BY_CI)], ids=str)
def test_a_command_of_the_documentation_works(clone: Path, line: str) -> None:
    done = followed(line, clone)
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
