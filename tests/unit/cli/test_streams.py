"""Standard streams that are closed or cannot be written to, and folders that are read-only."""

import os
import subprocess
import tempfile
from pathlib import Path

import pytest

from perfkit.base.formatting import size
from perfkit.cli import main
from tests.support.processes.launching import LIMIT_S, PYTHON, ROOT, TINY, environment
from tests.support.processes.other_user import NOBODY, as_nobody, needs_root
from tests.support.traces.hostile import harmless, make_runs

needs_full = pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full")
CLOSED = "<&- >&- 2>&-"
FULL = "perfkit: error: cannot write to stdout: No space left on device\n"


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    (run,) = make_runs(tmp_path_factory.mktemp("runs"), harmless, 1)
    return run


def shell(redirection: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run perfkit with redirected streams; without a shell's, none could be closed."""
    command = f'exec "$@" {redirection}'
    return subprocess.run(
        ["bash", "-c", command, "bash", *PYTHON, *arguments],
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
        timeout=LIMIT_S,
        cwd=ROOT,
    )


@needs_full
@pytest.mark.parametrize("arguments", [["schema"], ["--help"]])
def test_a_full_disk_under_stdout_is_one_line(arguments: list[str]) -> None:
    done = shell("> /dev/full", *arguments)
    assert (done.returncode, done.stderr) == (1, FULL)


@needs_full
@pytest.mark.slow  # `make test` has a full stdout, and files with closed streams
def test_files_are_written_though_stdout_is_full(run: Path, tmp_path: Path) -> None:
    file = tmp_path / "r.json"
    done = shell("> /dev/full", "analyze", str(run), "-o", "-", "-o", str(file))
    assert (done.returncode, done.stderr) == (1, f"Wrote {file} ({size(file.stat().st_size)})\n{FULL}")


@needs_full
def test_a_full_disk_under_stderr_changes_no_exit_code() -> None:
    for arguments, code in ((["--help"], 0), (["schema", "nothing"], 2)):
        assert shell("2> /dev/full", *arguments).returncode == code


def test_files_are_written_though_every_stream_is_closed(run: Path, tmp_path: Path) -> None:
    file = tmp_path / "r.json"
    assert shell(CLOSED, "analyze", str(run), "-o", str(file)).returncode == 0
    assert file.read_bytes().startswith(b"{")
    assert shell(CLOSED, "schema", "nothing").returncode == 2


def test_no_file_takes_the_place_of_a_closed_stream(run: Path, tmp_path: Path) -> None:
    """The first file that a process opens gets the number of a closed stream, and what is printed on it."""
    done = shell(">&-", "analyze", str(run), "-o", str(tmp_path / "r.json"), "-o", "-")
    assert (done.returncode, done.stdout) == (0, "")
    plain = tmp_path / "plain.json"
    assert main(["analyze", str(run), "-o", str(plain)]) == 0
    assert (tmp_path / "r.json").read_bytes() == plain.read_bytes()


@pytest.mark.slow  # records two runs
@pytest.mark.parametrize(("redirection", "ranks"), [(">&-", "1"), (CLOSED, "2")])
def test_a_run_is_recorded_though_nobody_listens(redirection: str, ranks: str, tmp_path: Path) -> None:
    options = ["--steps", "6", "-n", ranks, "--name", "x", "--trace-dir", str(tmp_path)]
    done = shell(redirection, "run", *TINY["gpt"], *options)
    assert done.returncode == 0
    assert len(list((tmp_path / "x").glob("rank*.json.gz"))) == int(ranks)
    assert "Traceback" not in done.stderr


@needs_root
def test_a_timeline_in_a_folder_that_is_read_only(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["merge", str(run), "-o", str(run.parent / "m.pftrace")]) == 0  # imports what nobody could not
    with tempfile.TemporaryDirectory(dir="/tmp") as text:
        folder = Path(text)
        (copy,) = make_runs(folder, harmless, 1)
        for path in (folder, copy, *copy.iterdir()):
            os.chown(path, NOBODY, NOBODY)
            path.chmod(0o555)
        capsys.readouterr()
        with as_nobody():
            code = main(["merge", str(copy), "-o", str(folder / "m.pftrace")])
        assert code == 1
        assert capsys.readouterr().err == f"perfkit: error: cannot write {folder}/m.pftrace: Permission denied\n"
