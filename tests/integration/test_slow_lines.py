"""The function and line of scripts that are slow at a known one, at default options."""

from collections.abc import Iterator
from pathlib import Path

import pytest

import perfkit
from perfkit.records.run import RunReport
from perfkit.records.samples import CodeLocation
from tests.support.processes.launching import PYTHON, execute
from tests.support.processes.slow_lines import RELATIVES, SLOW_LINES, SlowLine

pytestmark = pytest.mark.slow


def record(name: str, script: SlowLine, ranks: int, folder: Path) -> RunReport:
    path = folder / f"slow_{name}.py"
    path.write_text(script.text, encoding="utf-8")
    done = execute([*PYTHON, "run", str(path), "-n", str(ranks), "--trace-dir", str(folder), "--name", "run"])
    assert done.returncode == 0, done.stderr
    (run,) = perfkit.analyze(folder / "run").runs
    return run


def named(run: RunReport) -> Iterator[CodeLocation | None]:
    """Yield where the largest causes of the slow rank are: of idle time, of data loading, and why it is late."""
    slow = run.ranks[-1]
    yield from (row.code for row in slow.idle.causes[:2])
    yield from (part.code for part in (slow.loading.parts[:2] if slow.loading else []))
    yield from (row.code for row in (run.cross_rank.stragglers if run.cross_rank else []))


def is_named(script: SlowLine, run: RunReport) -> bool:
    own = [code for code in named(run) if code is not None and code.function == script.function]
    return any(code.line in script.lines and code.file.startswith("slow_") for code in own)


@pytest.mark.parametrize("ranks", [1, 2])
@pytest.mark.parametrize("name", SLOW_LINES)
def test_the_slow_line_is_named(name: str, ranks: int, tmp_path: Path) -> None:
    run = record(name, SLOW_LINES[name], ranks, tmp_path)
    assert is_named(SLOW_LINES[name], run), list(named(run))


@pytest.mark.parametrize("name", RELATIVES)
def test_so_are_functions_of_other_forms(name: str, tmp_path: Path) -> None:
    run = record(name, RELATIVES[name], 1, tmp_path)
    if name == "gradient_hook":  # runs within an operator: its time is compute
        assert ("compute", "clip") in [(row.category, row.code.function) for row in run.ranks[0].code[:2]]
        return
    assert is_named(RELATIVES[name], run), list(named(run))


def test_the_step_is_no_shorter_than_what_it_waits_for(tmp_path: Path) -> None:
    """Batches that the worker prepared while the trace was written make the first steps after it short."""
    run = record("worker_sleep", SLOW_LINES["worker_sleep"], 1, tmp_path)
    assert run.step_time is not None
    assert run.step_time.mean_ns >= 8 * 10_000_000


def test_without_sampling_nothing_is_named(tmp_path: Path) -> None:
    script = SLOW_LINES["tokenizer"]
    path = tmp_path / "slow_tokenizer.py"
    path.write_text(script.text, encoding="utf-8")
    done = execute([*PYTHON, "run", str(path), "--no-sampling", "--trace-dir", str(tmp_path), "--name", "run"])
    assert done.returncode == 0, done.stderr
    (run,) = perfkit.analyze(tmp_path / "run").runs
    assert not any(named(run))
