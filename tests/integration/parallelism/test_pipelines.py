"""Real pipelines of two ranks whose stages sleep for known times: the bubble is that of the schedule's own table.

Figures are within three points of it: other programs on the machine delay a rank that wakes up. A run that missed is
tried twice more, because a bubble that is measured wrongly is wrong every time.
"""

import pytest

import perfkit
from perfkit.records.run import RunReport
from tests.support.attempts import Attempts
from tests.support.processes.sleeping_pipeline import install, record

pytestmark = [pytest.mark.slow, pytest.mark.timing, pytest.mark.flaky(reruns=2)]

POINTS = 0.03
EACH_MS = "--layers 4 --forward-ms 25 --input-ms 25 --weight-ms 25"
CASES = {
    "gpipe": "--pp-schedule gpipe --micro-batches 2 --batch-size 2",
    "zero-bubble": "--pp-schedule zero-bubble --micro-batches 4 --batch-size 4",
    "heavy": "--pp-schedule interleaved --micro-batches 4 --batch-size 4 --heavy-stage 2 --heavy-factor 1.3",
}


@pytest.fixture(scope="module")
def attempts(tmp_path_factory: pytest.TempPathFactory) -> Attempts[dict[str, RunReport]]:
    def once() -> dict[str, RunReport]:
        folder = tmp_path_factory.mktemp("pipelines")
        install(folder)
        cases = {name: f"{EACH_MS} {options}" for name, options in CASES.items()}
        return {name: perfkit.analyze(run).runs[0] for name, run in record(folder, cases, ranks=2).items()}

    return Attempts(once)


@pytest.fixture
def recorded(attempts: Attempts[dict[str, RunReport]], request: pytest.FixtureRequest) -> dict[str, RunReport]:
    return attempts.at(request)


@pytest.mark.parametrize(
    ("schedule", "batches", "bubble"),
    # (p-1)/(m+p-1); of the other, by torch's own order with backward in halves: 2 idle units of 50.
    [("gpipe", 2, 1 / 3), ("zero-bubble", 4, 0.04)],
)
def test_the_bubble_is_that_of_the_schedule(
    schedule: str, batches: int, bubble: float, recorded: dict[str, RunReport]
) -> None:
    run = recorded[schedule]
    (found,) = run.pipelines
    assert (found.schedule, found.micro_batches, found.steps, found.reason) == (schedule, batches, 3, None)
    assert found.ideal_share == pytest.approx(bubble, abs=POINTS / 2)
    assert found.bubble_share == pytest.approx(bubble, abs=POINTS)
    assert found.heavy is None
    assert run.cross_rank is not None
    assert run.cross_rank.unmatched == 0
    assert run.ledger is not None
    row = run.ledger.of("bubble")
    assert row is not None
    assert row.share == pytest.approx(bubble, abs=POINTS)


def test_a_heavy_stage_is_named_with_its_size(recorded: dict[str, RunReport]) -> None:
    (found,) = recorded["heavy"].pipelines
    assert found.heavy is not None
    assert (found.heavy.stage, found.heavy.rank) == (2, 0)
    assert found.heavy.excess == pytest.approx(0.3, rel=0.1)
