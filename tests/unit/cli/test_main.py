"""The command line: what it imports, how it ends, and what it says on the way out."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import typer

import perfkit
from perfkit.cli import COMMANDS, Row, main
from perfkit.cli.typer_app import App
from perfkit.errors import PerfkitError, RunError, StoreError, UsageError
from tests.support.processes.launching import LIMIT_S

TRACE = Path(__file__).parents[2] / "data" / "traces" / "small" / "triton.json.gz"
HEAVY = {"torch", "pandas", "numpy", "msgspec", "rich", "h5py", "safetensors", "mpi4py", "pydantic", "click"}


def perfkit_process(*args: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "perfkit", *args],
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
        env={**os.environ, **environment},
    )


def modules_after(code: str) -> set[str]:
    script = f"import sys\n{code}\nprint(*{{m.partition('.')[0] for m in sys.modules}})"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=LIMIT_S)
    return set(done.stdout.splitlines()[-1].split())


def test_an_analysis_converts_no_argument_with_pydantic() -> None:
    assert "pydantic" not in modules_after(f"from perfkit.cli import main\nmain(['analyze', {str(TRACE)!r}, '--full'])")


def test_help_imports_nothing_heavy() -> None:
    assert not modules_after("from perfkit.cli import main\nmain(['--help'])") & HEAVY


def test_help_of_commands_imports_neither_torch_nor_pandas() -> None:
    commands = ["run", "sweep", "analyze", "compare", "view", "schema", "data"]
    helps = [f"assert main([{command!r}, '--help']) == 0" for command in commands]
    loaded = modules_after("\n".join(["from perfkit.cli import main", *helps]))
    assert not loaded & {"torch", "pandas", "numpy", "h5py", "mpi4py"}


WITHOUT_TORCH = [
    (["run", "gpt", "--help"], 0),
    (["run", "transformer", "--source", "hdf5", "--help"], 0),
    (["run", "gpt", "--stpes", "3"], 2),
    (["run", "gpt", "--width", "3"], 2),
    (["run", "gpt", "--hdf5-chunk", "3"], 2),
    (["run", "gpt", "--text", "/dev/null"], 1),
    (["run", "gpt", "-n", "1", "--inject", "rank=1,phase=backward,delay=5ms"], 2),
    (["run", "gpt", "-n", "2"], 0),  # the ranks are those of STUB
    (["sweep", "gpt", "--source", "memory,hdf5", "--launcher", "perfkit", "--dry-run"], 0),
    (["sweep", "gpt", "--source", "tape", "--dry-run"], 2),
]
STUB = f"sys.executable = {shutil.which('true')!r}"  # what `-n` starts in place of ranks


def test_options_of_a_run_are_described_and_checked_without_torch() -> None:
    checks = [f"assert main({command}) == {code}, {command}" for command, code in WITHOUT_TORCH]
    loaded = modules_after("\n".join(["from perfkit.cli import main", STUB, *checks]))
    assert not loaded & {"torch", "h5py", "safetensors", "mpi4py"}


def test_analyze_imports_neither_torch_nor_pandas(real_traces: Path) -> None:
    trace = real_traces / "cpu-gloo-1of300"
    loaded = modules_after(f"from perfkit.cli import main\nassert main(['analyze', {str(trace)!r}]) == 0")
    assert "numpy" in loaded
    assert not loaded & {"torch", "pandas", "h5py", "mpi4py"}


@pytest.mark.parametrize("name", COMMANDS)
def test_every_row_leads_to_a_command_with_help(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([name, "--help"]) == 0
    long = capsys.readouterr().out
    assert main([name, "-h"]) == 0
    assert capsys.readouterr().out == long
    usage, _, text = long.partition("\n\n")
    assert usage.startswith(f"Usage: perfkit {name} ")
    assert text.startswith("  ")
    assert "\x1b" not in long
    assert "completion" not in long


def test_help_lists_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    shown = capsys.readouterr().out
    assert main(["--help"]) == 0
    assert capsys.readouterr().out == shown
    for name, row in COMMANDS.items():
        assert name in shown
        assert row.help in shown
    headings = [line for line in shown.splitlines() if line.endswith(":") and not line.startswith(" ")]
    assert headings == ["Options:", "Record:", "Analyse:", "Compare:", "View:", "Prepare:"]


@pytest.mark.parametrize("name", [*(name for name in COMMANDS if name != "data"), "data prepare", "run gpt"])
def test_help_has_examples_that_fit_into_80_columns(
    name: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    for option in ("--help", "--help-all"):
        assert main([*name.split(), option]) == 0
        shown = capsys.readouterr().out
        assert re.search(rf"^  perfkit {name}\b", shown, re.MULTILINE)
        assert [line for line in shown.splitlines() if len(line) > 80] == []


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"perfkit, version {perfkit.__version__}\n"


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["analyse"], "No such command 'analyse'. Did you mean 'analyze'? (see `perfkit --help`)"),
        (["zzz"], "No such command 'zzz' (see `perfkit --help`)"),
        (["--foo"], "No such option: --foo"),
        (["run"], "Missing command (see `perfkit run --help`)"),
        (
            ["run", "--no-report", "gpt"],
            "--no-report: options come after the workload or script: perfkit run gpt --no-",
        ),
        (["run", "-n", "2", "--monitor", "gpt"], "--monitor: options come after the workload or script: perfkit run g"),
        (["run", "--monitor", "-m", "train"], "--monitor: options come after the workload or script: perfkit run -m M"),
        (["run", "--ask", "zzz"], "No such option: --ask"),
        (["run", "gptt"], "No such command 'gptt'. Did you mean 'gpt'?"),
        (["analyze"], "Missing argument 'PATH'"),
        (["analyze", "--fromat", "csv", "x"], "Possible options: --forecast, --format"),
        (["analyze", "x", "-f", "xml"], "'xml' is not one of summary, rich, json, markdown, csv"),
        (["analyze", "x", "--step-marker", "("], "is not a regular expression"),
        (["analyze", "x", "--top", "0"], "--top"),
        (["analyze", "x", "-o", "report.xls"], "unknown output format"),
        (["compare", "x"], "Missing argument 'AFTER'"),
        (["compare", "x", "y", "--fail-on", "slow"], "--fail-on 'slow': expected METRIC > LIMIT"),
        (["history", "x", "--by", "day"], "--by"),
        (["history", "x", "-o", "history.xml"], "unknown output format"),
        (["view", "x", "--ui", "ui.perfetto.dev"], "--ui ui.perfetto.dev: expected an address"),
        (["view", "x", "--ui", "http://127.0.0.1:1", "--offline"], "leave --ui out"),
        (
            ["schema", "nothing"],
            "'report', 'comparison', 'history', 'collectives', 'input', 'hta', 'plan', 'whatif', 'doctor', "
            "'diagnosis', 'hang', 'sweep', 'sweep-answer', 'run'",
        ),
    ],
)
def test_usage_errors_are_one_line_with_a_hint(
    args: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(args) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("perfkit: error: ")
    assert captured.err.count("\n") == 1
    assert message in captured.err


class Raising:
    """Stands for a command that ends with an error; `COMMANDS` leads to `app` below."""

    error: BaseException = RuntimeError()


app = App()


@app.command()
def raise_it() -> None:
    raise Raising.error


@pytest.fixture
def raising(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(COMMANDS, "raise", Row("View", f"{__name__}:app", "Raise."))


@pytest.mark.usefixtures("raising")
@pytest.mark.parametrize(
    ("error", "code", "line"),
    [
        (PerfkitError("what, where"), 1, "what, where"),
        (StoreError("two\nlines"), 1, "two lines"),
        (UsageError("\x1b[31mred"), 2, r"\x1b[31mred"),
        (RunError("rank 1 failed"), 1, "rank 1 failed"),
        (typer.BadParameter("bad"), 2, "Invalid value: bad"),
        (typer.TyperException("plain"), 1, "plain"),
        (KeyboardInterrupt(), 130, "interrupted"),
        (typer.Abort(), 130, "interrupted"),
        (
            ImportError("libtorch.so: cannot open shared object file"),
            1,
            "a package cannot be imported: libtorch.so: cannot open shared object file; see `perfkit doctor`",
        ),
        (ImportError("a typo", name="perfkit.records"), 70, "unexpected ImportError: a typo"),
        (
            ZeroDivisionError("by zero"),
            70,
            "unexpected ZeroDivisionError: by zero; run `perfkit --debug ...` to see where, and report it",
        ),
    ],
)
def test_errors_end_as_one_line_and_a_code(
    error: BaseException, code: int, line: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Raising, "error", error)
    assert main(["raise"]) == code
    message = capsys.readouterr().err.strip().splitlines()
    assert len(message) == 1
    assert message[0].startswith(f"perfkit: error: {line}")


@pytest.mark.usefixtures("raising")
@pytest.mark.parametrize("error", [ValueError("bug"), StoreError("disk")])
def test_debug_shows_the_traceback(
    error: Exception, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Raising, "error", error)
    assert main(["--debug", "raise"]) in {1, 70}
    message = capsys.readouterr().err
    assert "Traceback (most recent call last)" in message
    assert f'File "{__file__}"' in message
    assert "--debug" not in message


@pytest.mark.usefixtures("raising")
def test_a_command_may_choose_its_exit_code(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Raising, "error", typer.Exit(4))
    assert main(["raise"]) == 4
    monkeypatch.setattr(Raising, "error", SystemExit(3))
    with pytest.raises(SystemExit, match="3"):
        main(["raise"])


def test_as_a_module() -> None:
    done = perfkit_process("--version")
    assert (done.returncode, done.stdout, done.stderr) == (0, f"perfkit, version {perfkit.__version__}\n", "")
    assert perfkit_process("nothing").returncode == 2


@pytest.mark.parametrize("args", [["schema"], ["--help"]])
def test_a_closed_pipe_is_not_an_error(args: list[str]) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run(
        [sys.executable, "-m", "perfkit", *args],
        stdout=writing,
        stderr=subprocess.PIPE,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    os.close(writing)
    assert done.stderr == ""
    assert done.returncode == 1
