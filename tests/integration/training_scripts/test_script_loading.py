"""Scripts without torch's DataLoader: their loading is marked while they are recorded, or in the analysis."""

from pathlib import Path

import pytest
from msgspec.structs import astuple

import perfkit
from tests.integration.training_scripts.test_script import SCRIPTS, under_perfkit
from tests.support.processes.launching import MPIEXEC, execute, needs_mpiexec

SCRIPT = str(SCRIPTS / "own_loader.py")
GET_NS, PREPARE_NS = 20_000_000, 10_000_000
BOTH = "^(get_batch|data_preprocessing)$"


def loads_ns(run: Path, marker: str | None = None) -> dict[int | None, list[list[int]]]:
    """Return the loads of each step, by rank; all of them are part of its time."""
    (report,) = perfkit.analyze(run, data_marker=marker).runs
    for step in (step for rank in report.ranks for step in rank.steps):
        assert sum(astuple(step.exposed_ns)) == step.wall_ns
        assert step.total_ns.data_loading >= 0.99 * step.loads.sum_ns  # exposed or not: another rank may be late
    return {rank.rank: [step.loads.spans_ns for step in rank.steps] for rank in report.ranks}


@needs_mpiexec
def test_functions_and_annotations_are_marked_on_each_rank_and_sampled(tmp_path: Path) -> None:
    options = ("--name", "run", "--data-marker", BOTH, "--monitor", "--pyinstrument")
    done = execute([*MPIEXEC, *under_perfkit(SCRIPT, tmp_path, *options)])
    assert done.returncode == 0, done.stderr
    run = tmp_path / "run"
    found = loads_ns(run)
    assert set(found) == {0, 1}
    for get_ns, prepare_ns in (spans for steps in found.values() for spans in steps):
        assert get_ns >= GET_NS
        assert prepare_ns >= PREPARE_NS
    assert (perfkit.steps(run)["data_ns"] >= GET_NS + PREPARE_NS).all()
    for rank in range(2):
        assert "get_batch" in (run / f"rank{rank}.pyinstrument.txt").read_text()
        assert (run / f"rank{rank}.pyinstrument.html").stat().st_size
        assert (run / f"rank{rank}.pyinstrument.speedscope.json").stat().st_size


def test_what_was_recorded_without_marks_is_marked_in_the_analysis(tmp_path: Path) -> None:
    done = execute(under_perfkit(SCRIPT, tmp_path, "--name", "run", "--with-stack"))
    assert done.returncode == 0, done.stderr
    run = tmp_path / "run"
    assert loads_ns(run) == {0: [[]] * 3}
    assert all(spans[0] >= GET_NS and spans[1] >= PREPARE_NS for spans in loads_ns(run, BOTH)[0])
    assert all(len(spans) == 1 and spans[0] >= GET_NS for spans in loads_ns(run, "batch$")[0])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--data-marker", "("], "error: --data-marker '(' is not a regular expression"),
        (["--pyinstrument", "--detail", "why"], "error: --detail why and --pyinstrument both need"),
        (["--pyinstrument", "--with-stack"], "error: --with-stack and --pyinstrument both need"),
        (["--data-marker", "nothing"], "warning: --data-marker 'nothing' matches no function of"),
    ],
)
def test_wrong_options_are_one_line(options: list[str], message: str, tmp_path: Path) -> None:
    done = execute(under_perfkit(SCRIPT, tmp_path, *options), stub_torch="(" in options)
    assert sum(message in line for line in done.stderr.splitlines()) == 1, done.stderr
    assert done.returncode == (0 if "warning" in message else 2)
