"""Known delays, injected into real runs of two ranks: each is found in its category, on its rank, with its size.

The model is tiny and the delay long, so that other activity on the machine stays far below the delay. Figures are
medians over steps. The bounds separate a delay in its place from one elsewhere, cut short or counted twice.

The tests compare wall times, so they run one at a time and with no other test beside them: in the slow tier, marked
`timing`. Other programs may still disturb a run, so one that missed is tried twice more: a delay attributed wrongly is
attributed wrongly every time.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path
from statistics import median

import pytest

import perfkit
from perfkit.records.common import CATEGORIES
from perfkit.records.run import RunReport
from tests.support.attempts import Attempts
from tests.support.processes.command import run_command
from tests.support.processes.launching import in_real_time, record_forked
from tests.support.traces.trace_processor import TraceProcessor, needs_trace_processor, slices

SIZES = {"layers": 1, "width": 32, "heads": 2, "block": 16, "batch-size": 4, "vocab-size": 64, "samples": 256}
TINY = [word for name, value in SIZES.items() for word in (f"--{name}", str(value))]
SCHEDULE = "wait=1,warmup=2,active=9"
MS = 1_000_000
DELAY_MS = 100
SIZE = 0.25
"""How far a figure may be from the delay, relative to it."""
PLACE = 0.8
"""Least share of the added time of a rank that must be in the category of the delay."""

# Cause of reruns: other programs on the machine change wall times.
pytestmark = [pytest.mark.slow, pytest.mark.timing, pytest.mark.flaky(reruns=2)]


def record(folder: Path, delays: Iterable[Sequence[str]]) -> list[RunReport]:
    """Record a run with each set of delays, one after the other."""
    whole = ["gpt", *TINY, "--schedule", SCHEDULE, "--steps", "12"]
    faults = [" ".join([*whole, *(f"--inject {delay}" for delay in injected)]) for injected in delays]
    record_forked(folder, 2, {str(number): text for number, text in enumerate(faults)}, before=in_real_time())
    return [perfkit.analyze(folder / str(number)).runs[0] for number in range(len(faults))]


def medians(run: RunReport) -> dict[tuple[int | None, str], float]:
    """Return the median exposed milliseconds per step, by rank and category."""
    return {
        (rank.rank, category): median(getattr(step.exposed_ns, category) for step in rank.steps) / MS
        for rank in run.ranks
        for category in CATEGORIES
    }


CASES: dict[str, tuple[list[str], dict[int, str], tuple[str, list[int]]]] = {
    "loader of both ranks": (
        [f"phase=data_loading,delay={DELAY_MS}ms"],
        {0: "data_loading", 1: "data_loading"},
        ("data_loading", []),
    ),
    "loader of rank 1": (
        [f"rank=1,phase=data_loading,delay={DELAY_MS}ms"],
        {1: "data_loading", 0: "communication"},
        ("late_ranks", [1]),
    ),
    "rank 1 before backward": (
        [f"rank=1,phase=backward,delay={DELAY_MS}ms"],
        {1: "overhead", 0: "communication"},
        ("late_ranks", [1]),
    ),
}


Runs = tuple[RunReport, dict[str, RunReport]]
"""A run without a delay, and one of each case."""


@pytest.fixture(scope="module")
def attempts(tmp_path_factory: pytest.TempPathFactory) -> Attempts[Runs]:
    def once() -> Runs:
        delays = [[], *(injected for injected, _, _ in CASES.values())]
        quiet, *delayed = record(tmp_path_factory.mktemp("delays"), delays)
        return quiet, dict(zip(CASES, delayed, strict=True))

    return Attempts(once)


@pytest.fixture
def recorded(attempts: Attempts[Runs], request: pytest.FixtureRequest) -> Runs:
    return attempts.at(request)


@pytest.mark.parametrize("case", CASES)
def test_a_delay_is_found_where_it_is_and_nothing_else_moves(
    case: str, recorded: tuple[RunReport, dict[str, RunReport]]
) -> None:
    quiet, run = recorded[0], recorded[1][case]
    _, expected, loss = CASES[case]
    baseline = medians(quiet)
    moved = {key: value - baseline[key] for key, value in medians(run).items()}
    for rank, category in expected.items():
        # Decreases are left out: a rank that is late itself no longer waits for the other.
        grown: dict[str, float] = {name: max(moved[rank, name], 0) for name in CATEGORIES}
        assert grown[category] == pytest.approx(DELAY_MS, rel=SIZE), (rank, moved)
        assert grown[category] >= PLACE * sum(grown.values()), (rank, moved)
    assert run.ledger is not None
    largest = run.ledger.losses[0]
    assert (largest.cause, largest.ranks) == loss
    assert largest.ns == pytest.approx(DELAY_MS * MS, rel=SIZE)
    assert "injected_delay" in {finding.code for finding in run.findings}


def test_a_late_rank_is_named_and_the_others_communication_is_waiting_for_it(
    recorded: tuple[RunReport, dict[str, RunReport]],
) -> None:
    run = recorded[1]["rank 1 before backward"]
    assert run.cross_rank is not None
    (straggler,), waits = run.cross_rank.stragglers, run.cross_rank.rank_waits
    assert (straggler.rank, straggler.every, straggler.steps_last) == (1, 1, straggler.steps)
    # The delay is a sleep on the host, before backward.
    assert straggler.category == "overhead"
    assert straggler.lag_ns == pytest.approx(DELAY_MS * MS, rel=SIZE)
    assert straggler.gain_ns == pytest.approx(DELAY_MS * MS, rel=SIZE)
    exposed_ns = sum(step.exposed_ns.communication for step in run.ranks[0].steps)
    assert waits[0].exposed_wait_ns >= PLACE * exposed_ns
    assert waits[1].wait_ns < (1 - PLACE) * waits[0].wait_ns


@needs_trace_processor
def test_in_the_merged_timeline_the_delay_is_the_others_waiting(
    recorded: tuple[RunReport, dict[str, RunReport]], tmp_path: Path
) -> None:
    output = tmp_path / "merged.pftrace"
    assert run_command("merge", recorded[1]["rank 1 before backward"].path, "-o", output).returncode == 0
    timeline = TraceProcessor(output)
    assert timeline.errors() == {}
    waits = slices(timeline, "name = 'waits for rank 1: all_reduce' and process = 'rank 0'")
    steps = slices(timeline, "thread = 'perfkit: step' and process = 'rank 0'")
    assert len(steps) == 9
    for step in steps:
        begin, end = int(str(step["ts"])), int(str(step["ts"])) + int(str(step["dur"]))
        waited_ns = sum(int(str(row["dur"])) for row in waits if begin <= int(str(row["ts"])) < end)
        assert 0.5 * DELAY_MS * MS < waited_ns < 5 * DELAY_MS * MS
