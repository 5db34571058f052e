"""Runs with known faults that were recorded on a GPU: what is said of them against what is true."""

import re
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest

from perfkit.pipeline import whatif
from perfkit.pipeline.analyze import analyze
from perfkit.records.report import Report
from perfkit.records.run import RunReport
from tests.gpu.__main__ import largest_difference

RUNS: Final = Path(__file__).parents[2] / "data" / "runs" / "h100"
MS: Final = 1e6
WITHIN: Final = 0.2


def report(name: str) -> Report:
    return analyze([RUNS / name], cache=False)


def run(name: str) -> RunReport:
    return report(name).runs[0]


@pytest.mark.parametrize("path", sorted(RUNS.iterdir()), ids=lambda path: path.name)
def test_the_breakdown_is_that_of_an_independent_reading(path: Path) -> None:
    as_json: dict[str, Any] = msgspec.to_builtins(run(path.name))
    difference = largest_difference(path, as_json)
    assert difference is not None
    assert difference < 0.005


@pytest.mark.parametrize(
    ("name", "headline"),
    [
        ("loader", "Data loading takes 39 %: `tokenize`, train.py:51."),
        ("pageable", r"Copies take 19 %: Memcpy HtoD \(Pageable -> Device\)."),
        ("checkpoint", "Checkpoints take 8[0-9] % of the time, besides the steps: train.py:136 step."),
    ],
)
def test_the_fault_is_in_the_headline(name: str, headline: str) -> None:
    assert re.fullmatch(headline, run(name).verdict.sentence)


@pytest.mark.parametrize(
    ("name", "change", "costs_ms"),
    [("item", "sync=removed", 3.0), ("pageable", "copies=0", 12.1), ("loader", "input=0", 26.1)],
)
def test_what_a_change_is_predicted_to_save_is_what_the_fault_costs(name: str, change: str, costs_ms: float) -> None:
    """The truth is the difference of steps without the profiler, with and without the fault."""
    prediction = whatif.predict(RUNS / name, [change]).prediction
    assert prediction is not None
    assert prediction.saving_ns == pytest.approx(costs_ms * MS, rel=WITHIN)


def test_an_occupancy_of_nothing_is_unknown() -> None:
    """Kineto writes 0 for the matrix products of this device."""
    (rank,) = run("loader").ranks
    assert rank.work is not None
    known = [row.occupancy_percent for row in rank.work.kernels if row.occupancy_percent is not None]
    assert known
    assert min(known) > 0


def test_a_step_after_a_pause_is_not_taken_for_a_short_one() -> None:
    """Every fourth step took 3 to 20 ms by the host's clock, because the device was done with the one before."""
    ledger = run("checkpoint").ledger
    assert ledger is not None
    assert ledger.step_ns == pytest.approx(36.2 * MS, rel=0.05)


def test_a_thread_that_waits_for_autograds_own_is_not_said_to_wait() -> None:
    """Backward passes run on a thread of the device, and this one is bound by launching."""
    ledger = run("nccl").ledger
    assert ledger is not None
    assert ledger.of("not_running") is None
    assert ledger.rows[0].cause == "launch_bound"


def test_what_waiting_for_the_device_costs_is_booked_on_who_waits() -> None:
    """The device is idle not while the host waits, but until it has launched again."""
    ledger = run("item").ledger
    assert ledger is not None
    row = ledger.losses[0]
    assert (row.cause, row.code and row.code.function) == ("synchronisation", "check_finite")
    assert row.ns == pytest.approx(3.0 * MS, rel=WITHIN)
