"""What `perfkit run SCRIPT` answers to arguments that are not its own."""

from pathlib import Path

import pytest

from perfkit.cli import main


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["-m"], "-m: the name of a module is missing"),
        (["-m", "--name", "a"], "-m: the name of a module is missing"),
        (["-m", "package.train", "--epochs", "1"], "come after `--`: perfkit run -m package.train -- --epochs"),
        (["train.py", "--epochs=1"], "come after `--`: perfkit run train.py -- --epochs"),
        (["-n", "2", "train.py", "data"], "come after `--`: perfkit run train.py -- ARGUMENTS"),
        (["-n", "2"], "the workload or script is missing"),
        (["train.py", "data"], "come after `--`: perfkit run train.py -- ARGUMENTS"),
        (["train.py", "--step-on", "a b"], "--step-on a b: choose"),
    ],
)
def test_arguments_that_are_none_of_perfkits(
    arguments: list[str],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "train.py").touch()
    monkeypatch.chdir(tmp_path)
    assert main(["run", *arguments]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert message in line
