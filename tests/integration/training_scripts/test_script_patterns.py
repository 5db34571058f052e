"""What a step is in scripts that train in unusual ways; each prints and ends as by itself."""

from pathlib import Path
from typing import NamedTuple

import pytest

import perfkit
from perfkit.storage.run_folder import read_manifest
from tests.support.attempts import Attempts
from tests.support.processes.launching import SHORT
from tests.support.processes.script_pairs import ScriptRun, run_forked

PATTERNS = str(Path(__file__).parents[1] / "scripts" / "patterns.py")


class Case(NamedTuple):
    pattern: str
    steps: int | None
    """Steps in the manifest; None if there is no run."""
    line: str
    """A part of the closing line."""
    step_on: str | None = None
    code: int = 0


FAST = [
    Case("step_in_backward", 12, "12 steps; to see"),
    Case("compiled_step", 12, "12 steps; to see"),
    Case("manual_update", None, "12 backward passes ran: --step-on backward counts those"),
]
SLOW = [
    Case("compiled_model", 12, "12 steps; to see"),
    Case("compiled_gradients", 11, "11 steps; to see"),  # the first one tells that there are no backward passes
    Case("parameter_groups", 12, "12 steps; to see"),
    Case("critic_and_generator", 60, "60 steps of opt_c (opt_g made 12: --step-on opt_g counts those); to see"),
    Case("critic_and_generator", 12, "12 steps of opt_g (opt_c made 60", "opt_g"),
    Case("scaler", 12, "12 steps (4 without an update, which a GradScaler skipped)"),
    Case("manual_update", 12, "12 steps; to see", "backward"),
    Case("inference", None, "for inference: --step-on forward"),
    Case("inference", 12, "12 steps; to see", "forward"),
    Case("inference", 12, "12 steps; to see", "forward:Net"),
    Case("inference", None, "no such module was called; those that were: Net, Sequential", "forward:Nett", 1),
    Case("two_phases", 3, "3 steps of warm_up (main_phase made 12: --step-on main_phase counts those), and no trace"),
    Case("two_phases", 12, "12 steps", "main_phase"),
    Case("resumed", 12, "12 steps; to see"),
    Case("accumulated", 12, "12 steps; to see"),
    Case("closure", 12, "12 steps; to see"),
    Case("thread_that_ends", 4, "4 steps; to see"),
    Case("thread_per_epoch", 12, "12 steps; to see"),
    Case("step_in_threads", None, "another thread than backward passes run in: --step-on backward counts those"),
    Case("step_in_threads", 12, "12 steps; to see", "backward"),
    Case("marks", 12, "12 steps; to see"),
    Case("watched", 12, "12 steps; to see"),
    Case("fails", 5, "failed after 5 steps: ", code=1),
]


def arguments(case: Case) -> list[str]:
    step_on = [] if case.step_on is None else ["--step-on", case.step_on]
    return ["run", PATTERNS, "--no-report", *SHORT, "--name", "recorded", *step_on, "--", case.pattern]


def check(case: Case, alone: ScriptRun, recorded: ScriptRun, folder: Path) -> None:
    own = [line for line in recorded.errors.splitlines() if line.startswith("perfkit: ")]
    assert recorded.output == alone.output, recorded.errors
    assert recorded.code == (alone.code or case.code), recorded.errors
    assert len(own) == 1
    assert case.line in own[0]
    assert "perfkit/record" not in recorded.errors
    if case.steps is None:
        assert not (folder / "traces").exists()
        return
    manifest = read_manifest(folder / "traces" / "recorded")
    assert len(manifest.step_kinds) == case.steps
    if case.steps > 3:
        (run,) = perfkit.analyze(folder / "traces").runs
        assert [len(rank.steps) for rank in run.ranks] == [min(3, case.steps - 3)]


def run_all(cases: list[Case], folder: Path) -> list[tuple[ScriptRun, ScriptRun]]:
    runs = []
    for place, case in enumerate(cases):
        runs += [([PATTERNS, case.pattern], folder / f"{place}-alone"), (arguments(case), folder / str(place))]
    done = run_forked(runs)
    return list(zip(done[::2], done[1::2], strict=True))


@pytest.mark.slow  # four scripts, alone and under perfkit, with a compiler: 12 s
def test_steps_inside_backward_passes_and_compiled_steps(tmp_path: Path) -> None:
    for place, (case, pair) in enumerate(zip(FAST, run_all(FAST, tmp_path), strict=True)):
        check(case, *pair, tmp_path / str(place))


Matrix = tuple[Path, list[tuple[ScriptRun, ScriptRun]]]
"""A folder, and in it the runs of each pattern, alone and under perfkit."""


@pytest.fixture(scope="module")
def attempts(tmp_path_factory: pytest.TempPathFactory) -> Attempts[Matrix]:
    def once() -> Matrix:
        folder = tmp_path_factory.mktemp("patterns")
        return folder, run_all(SLOW, folder)

    return Attempts(once)


@pytest.fixture
def matrix(attempts: Attempts[Matrix], request: pytest.FixtureRequest) -> Matrix:
    return attempts.at(request)


@pytest.mark.slow  # `make test` has the patterns that once crashed
@pytest.mark.parametrize("place", range(len(SLOW)), ids=[f"{case.pattern}-{case.step_on}" for case in SLOW])
def test_a_pattern(place: int, matrix: Matrix) -> None:
    folder, pairs = matrix
    check(SLOW[place], *pairs[place], folder / str(place))


@pytest.mark.slow
@pytest.mark.flaky(reruns=2)  # what else runs on a core slows a program down in processor time, too
def test_recording_costs_a_short_script_less_than_two_seconds_of_cpu_time(
    matrix: Matrix,
) -> None:
    _, pairs = matrix
    costs_s = [recorded.cpu_s - alone.cpu_s for alone, recorded in pairs]
    assert max(costs_s) < 2, costs_s


@pytest.mark.slow
@pytest.mark.timing
@pytest.mark.flaky(reruns=2)  # other programs on the machine change wall times
def test_recording_a_short_script_waits_for_nothing(tmp_path_factory: pytest.TempPathFactory) -> None:
    cases = [case for case in SLOW if case.pattern in ("accumulated", "thread_that_ends", "watched")]
    pairs = run_all(cases, tmp_path_factory.mktemp("waits"))  # another folder at each attempt
    # A busy machine lets both wait for a core, in the same proportion to the time that they have one.
    without = sum(alone.wall_s for alone, _ in pairs) / sum(alone.cpu_s for alone, _ in pairs)
    waiting = [recorded.wall_s / recorded.cpu_s / without for _, recorded in pairs]
    assert max(waiting) < 2.5, waiting
