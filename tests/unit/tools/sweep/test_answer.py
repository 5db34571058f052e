"""What a sweep says at its end: which configuration is fastest."""

from pathlib import Path
from typing import Any

import pytest

from perfkit.records.manifest import Throughput
from perfkit.records.sweep import SweepAnswer
from perfkit.tools.sweep.answer import answer, table
from perfkit.tools.sweep.folder import SweepFolder
from perfkit.tools.sweep.plan import Axis
from perfkit.tools.sweep.point import Point
from tests.support.reports.sweep_builders import leave_run, points_of, wanted

SOURCES = Axis("source", ("memory", "hdf5"))


def throughput(samples_per_s: float, samples: int) -> Throughput:
    return Throughput(
        samples_per_s=samples_per_s,
        tokens_per_s=None,
        flops_per_s=None,
        mfu=None,
        mfu_reason=None,
        read_bytes_per_s=None,
        measured_on="plain",
        step_ns=round(samples * 1e9 / samples_per_s),
    )


def measured(folder: Path, rates: dict[tuple[int, str], list[float]], **asked: Any) -> tuple[SweepAnswer, list[Point]]:
    """Return the answer of a sweep whose runs had these rates, by ranks and source."""
    repeats = max(map(len, rates.values()))
    sweep = wanted(axes=(SOURCES,), repeats=repeats, trace_dir=str(folder), **asked)
    points = points_of(sweep)
    for point in points:
        of_point = rates.get((point.ranks, point.config["source"]), [])[: point.repeat]
        if len(of_point) == point.repeat:
            leave_run(folder, point, throughput=throughput(of_point[-1], 16 * point.ranks))
    return answer(SweepFolder(folder), points, sweep.axes), points


def test_the_fastest_is_compared_with_the_next_on_as_many_ranks(tmp_path: Path) -> None:
    rates = {
        (1, "memory"): [50, 51, 52],
        (1, "hdf5"): [40, 41, 42],
        (2, "memory"): [99, 100, 101],
        (2, "hdf5"): [79, 80, 81],
    }
    found, _ = measured(tmp_path, rates)  # type: ignore[arg-type]
    assert [one.name for one in found.configurations][:2] == ["2 ranks, memory", "2 ranks, hdf5"]
    assert found.sentences == [
        "Fastest: 2 ranks, memory, with 100 samples/s (step 320 ms).",
        "The next on as many ranks is 2 ranks, hdf5: 80.0 samples/s, 20 % less.",
    ]
    assert found.commands[0] == f"perfkit analyze {tmp_path}"
    assert "hdf5-2ranks" in found.commands[1].split()[2]
    assert "memory-2ranks" in found.commands[1].split()[3]
    assert {point.state for point in found.points} == {"completed"}
    assert len(table(found.configurations, 3)) == 4
    assert table(found.configurations, 3)[-1] == "and 1 more"


def test_steps_with_other_numbers_of_samples_are_not_compared_in_silence(tmp_path: Path) -> None:
    meshes = Axis("mesh", ("dp=2", "tp=2"))
    asked = wanted(axes=(meshes,), repeats=1, trace_dir=str(tmp_path))
    points = points_of(asked)
    for point, rate, samples in zip(points, (100, 60), (32, 16), strict=True):
        leave_run(tmp_path, point, throughput=throughput(rate, samples))
    found = answer(SweepFolder(tmp_path), points, asked.axes)
    assert found.sentences[1:3] == [
        "A step of it has 32 samples, one of the next 16: they do not do the same work per step.",
        "The next on as many ranks is 2 ranks, tp=2: 60.0 samples/s, 40 % less.",
    ]


def test_runs_that_overlap_are_not_told_apart(tmp_path: Path) -> None:
    found, _ = measured(tmp_path, {(2, "memory"): [100, 80], (2, "hdf5"): [79, 85]}, ranks=(2,))
    assert found.sentences[1:] == [
        "It cannot be told from 2 ranks, hdf5: 82.0 samples/s: their runs overlap.",
        "Some have 2 runs only: --repeat 3 shows how much runs differ.",
    ]


@pytest.mark.parametrize("rates", [{}, {(1, "memory"): [50.0]}])
def test_nothing_is_called_fastest_without_another(tmp_path: Path, rates: dict[tuple[int, str], list[float]]) -> None:
    found, points = measured(tmp_path, rates or {(9, ""): [0.0]})
    assert found.sentences == []
    assert len(found.configurations) == len(rates)
    assert len(found.points) == len(points)
