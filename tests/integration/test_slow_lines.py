"""The function and line of scripts that are slow at a known one, at default options."""

from collections.abc import Iterator
from pathlib import Path

import pytest

import perfkit
from perfkit.records.run import RunReport
from perfkit.records.samples import CodeLocation
from tests.support.attempts import Attempts
from tests.support.processes.script_pairs import run_forked
from tests.support.processes.slow_lines import RELATIVES, SLOW_LINES, SlowLine

# Where other programs take the cores, a sampler sees too little of a function.
pytestmark = [pytest.mark.slow, pytest.mark.flaky(reruns=2)]

Runs = dict[str, RunReport]
"""By the script's name."""
ON_TWO_RANKS = ("augmentation", "lock", "small_files", "worker_sleep", "item", "print")
"""In data loading with and without a worker, in a wait, in a call of torch, and in Python: why a rank is late."""


def record(scripts: dict[str, SlowLine], folder: Path, ranks: int, *options: str) -> Runs:
    runs = []
    for name, script in scripts.items():
        path = folder / f"slow_{name}.py"
        path.write_text(script.text, encoding="utf-8")
        runs.append((["run", str(path), "--no-report", "--name", "run", *options], folder / name))
    for ended in run_forked(runs, ranks=ranks):
        assert ended.code == 0, ended.errors
    return {name: perfkit.analyze(folder / name / "traces" / "run").runs[0] for name in scripts}


@pytest.fixture(scope="module")
def attempts_alone(tmp_path_factory: pytest.TempPathFactory) -> Attempts[Runs]:
    return Attempts(lambda: record(SLOW_LINES | RELATIVES, tmp_path_factory.mktemp("alone"), 1))


@pytest.fixture
def alone(attempts_alone: Attempts[Runs], request: pytest.FixtureRequest) -> Runs:
    return attempts_alone.at(request)


@pytest.fixture(scope="module")
def attempts_on_two(tmp_path_factory: pytest.TempPathFactory) -> Attempts[Runs]:
    scripts = {name: SLOW_LINES[name] for name in ON_TWO_RANKS}
    return Attempts(lambda: record(scripts, tmp_path_factory.mktemp("two"), 2))


@pytest.fixture
def on_two_ranks(attempts_on_two: Attempts[Runs], request: pytest.FixtureRequest) -> Runs:
    return attempts_on_two.at(request)


def named(run: RunReport) -> Iterator[CodeLocation | None]:
    """Yield where the largest causes of the slow rank are: of idle time, of data loading, and why it is late."""
    slow = run.ranks[-1]
    yield from (row.code for row in slow.idle.causes[:2])
    yield from (part.code for part in (slow.loading.parts[:2] if slow.loading else []))
    yield from (row.code for row in (run.cross_rank.stragglers if run.cross_rank else []))


def is_named(script: SlowLine, run: RunReport) -> bool:
    own = [code for code in named(run) if code is not None and code.function == script.function]
    return any(code.line in script.lines and code.file.startswith("slow_") for code in own)


@pytest.mark.parametrize("name", SLOW_LINES)
def test_the_slow_line_is_named(name: str, alone: Runs) -> None:
    assert is_named(SLOW_LINES[name], alone[name]), list(named(alone[name]))


@pytest.mark.parametrize("name", ON_TWO_RANKS)
def test_the_slow_line_of_the_late_rank_is_named(name: str, on_two_ranks: Runs) -> None:
    run = on_two_ranks[name]
    assert len(run.ranks) == 2
    assert is_named(SLOW_LINES[name], run), list(named(run))


@pytest.mark.parametrize("name", RELATIVES)
def test_so_are_functions_of_other_forms(name: str, alone: Runs) -> None:
    if name == "gradient_hook":  # runs within an operator: its time is compute
        assert ("compute", "clip") in [(row.category, row.code.function) for row in alone[name].ranks[0].code[:2]]
        return
    assert is_named(RELATIVES[name], alone[name]), list(named(alone[name]))


def test_the_step_is_no_shorter_than_what_it_waits_for(alone: Runs) -> None:
    """Batches that the worker prepared while the trace was written make the first steps after it short."""
    step_time = alone["worker_sleep"].step_time
    assert step_time is not None
    assert step_time.mean_ns >= 8 * 10_000_000


def test_without_sampling_nothing_is_named(tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("unsampled")  # another at each attempt
    (run,) = record({"tokenizer": SLOW_LINES["tokenizer"]}, folder, 1, "--no-sampling").values()
    assert not any(named(run))
