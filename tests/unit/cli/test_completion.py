"""Shell completion: what bash is given for real, and what the protocols of zsh and fish answer."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from perfkit.cli import main
from tests.support.processes.launching import LIMIT_S
from tests.unit.cli.test_main import modules_after

BASH = shutil.which("bash")
SCRIPT = """
source <(_PERFKIT_COMPLETE=source_bash perfkit)
tab() {
    COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); COMPREPLY=()
    $(complete -p perfkit | sed 's/.*-F \\([^ ]*\\).*/\\1/') perfkit
    echo "${COMPREPLY[*]}"
}
"""


def bash_completes(lines: list[list[str]], folder: Path) -> list[str]:
    tabs = "\n".join("tab " + " ".join(f"'{word}'" for word in ["perfkit", *line]) for line in lines)
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    done = subprocess.run(
        [str(BASH), "--norc", "-c", SCRIPT + tabs],
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=True,
        cwd=folder,
        env={**os.environ, "PATH": path},
    )
    assert not done.stderr
    return done.stdout.splitlines()


@pytest.mark.skipif(BASH is None, reason="needs bash")
def test_bash_completes_commands_options_and_their_values(tmp_path: Path) -> None:
    (tmp_path / "train.py").touch()
    (tmp_path / "$(touch evil).py").touch()
    lines = [["sw"], ["run", ""], ["run", "gpt", "--dp", "z"], ["analyze", "--section", "cr"], ["run", "no.py", "-"]]
    assert bash_completes(lines, tmp_path) == [
        "sweep",
        "transformer gpt classify train.py",
        "zero1 zero2 zero3",
        "critical-path cross-check",
        "",
    ]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["$(touch evil).py", "train.py"]


@pytest.mark.parametrize(
    ("shell", "expected"),
    [
        ("zsh", '_arguments \'*: :(("sweep":"Train at several world sizes'),
        ("fish", "sweep\tTrain at several world sizes"),
    ],
)
def test_zsh_and_fish_are_answered_with_descriptions(
    shell: str, expected: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("_PERFKIT_COMPLETE", f"complete_{shell}")
    monkeypatch.setenv("_TYPER_COMPLETE_ARGS", "perfkit swe")
    monkeypatch.setenv("_TYPER_COMPLETE_FISH_ACTION", "get-args")
    assert main([]) == 0
    assert capsys.readouterr().out.startswith(expected)


def test_a_line_that_is_wrong_so_far_prints_nothing_into_the_prompt(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("_PERFKIT_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", "perfkit run missing.py --ste")
    monkeypatch.setenv("COMP_CWORD", "3")
    assert main([]) == 1
    assert capsys.readouterr() == ("", "")


def test_completing_options_of_a_workload_does_not_import_torch() -> None:
    words = "COMP_WORDS='perfkit run gpt --d', COMP_CWORD='3'"
    asked = f"import os; os.environ |= dict(_PERFKIT_COMPLETE='complete_bash', {words})"
    loaded = modules_after(f"{asked}\nfrom perfkit.cli import main\nassert main([]) == 0")
    assert not loaded & {"torch", "h5py", "safetensors", "mpi4py"}
