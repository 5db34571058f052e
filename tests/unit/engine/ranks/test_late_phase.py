"""The phase of a straggler is named if it takes longer by about the lag, and only then."""

import pytest

from perfkit.engine.ranks.late_causes import name_causes
from perfkit.records.common import Category
from perfkit.records.cross_rank import Straggler
from perfkit.records.rank import ExposedNs, PhaseStat, RankReport
from tests.support.reports.report_builders import MS, make_rank, make_step

STEPS = 4


def straggler(rank: int, *, category: Category = "overhead", late: int = STEPS, in_turns: bool = False) -> Straggler:
    return Straggler(
        rank=rank,
        category=category,
        lag_ns=30 * MS,
        share=0.3,
        every=STEPS // late,
        in_turns=in_turns,
        gain_ns=30 * MS,
        steps_late=late,
        steps_last=late,
        steps=STEPS,
    )


def rank_with(rank: int, **phases_ms: float) -> RankReport:
    """Return a rank with the mean durations of its phases per step."""
    steps = [make_step(number) for number in range(STEPS)]
    names = {name: f"perfkit.{name}" if name != "own" else "train" for name in phases_ms}
    phases = [
        PhaseStat(name=names[name], count=STEPS, total_ns=round(ms * MS) * STEPS, max_ns=round(ms * MS))
        for name, ms in phases_ms.items()
    ]
    return make_rank(rank, steps, phases=phases)


def phase(row: Straggler, *ranks: RankReport) -> str | None:
    (named,) = name_causes([row], ranks, {})
    return named.phase


def test_the_phase_that_takes_longer_is_named_though_the_others_wait_in_another() -> None:
    late, prompt = rank_with(1, forward=31, backward=20), rank_with(0, forward=1, backward=51)
    assert phase(straggler(1), prompt, late) == "forward"


def test_a_delay_in_one_step_of_two_is_half_as_long_on_average() -> None:
    assert phase(straggler(1, late=2), rank_with(0, forward=1), rank_with(1, forward=16)) == "forward"


def test_only_the_time_of_the_stragglers_category_is_compared() -> None:
    def rank(number: int, forward: dict[str, float], backward: dict[str, float]) -> RankReport:
        times = {"compute": 0.0, "communication": 0.0, "memcpy": 0.0, "data_loading": 0.0, "overhead": 0.0}
        phases = [
            PhaseStat(
                name=f"perfkit.{name}",
                count=STEPS,
                total_ns=STEPS * round(MS * sum(parts.values())),
                max_ns=MS,
                exposed_ns=ExposedNs(**{key: STEPS * round(MS * ms) for key, ms in (times | parts).items()}),
            )
            for name, parts in (("forward", forward), ("backward", backward))
        ]
        return make_rank(number, [make_step(step) for step in range(STEPS)], phases=phases)

    # Idle for 30 ms in backward, for which the other rank waits; it also computes for longer in forward.
    late = rank(1, {"compute": 47, "overhead": 2}, {"compute": 60, "overhead": 31})
    prompt = rank(0, {"compute": 25, "overhead": 2}, {"compute": 60, "communication": 52, "overhead": 1})
    assert phase(straggler(1), prompt, late) == "backward"
    assert phase(straggler(1, category="compute"), prompt, late) == "forward"


@pytest.mark.parametrize(
    ("late", "prompt"),
    [
        ({"forward": 5, "backward": 20}, {"forward": 1, "backward": 50}),  # the delay lies outside of phases
        ({"forward": 80}, {"forward": 1}),  # more than the delay: it waits there, too
        ({"forward": 16, "optimizer": 15}, {"forward": 4, "optimizer": 3}),  # in parts
        ({"own": 31}, {"own": 1}),  # an annotation of the program's, whose meaning is not known
        ({}, {}),
    ],
)
def test_nothing_is_named_that_does_not_fit(late: dict[str, float], prompt: dict[str, float]) -> None:
    assert phase(straggler(1), rank_with(0, **prompt), rank_with(1, **late)) is None


def test_nothing_is_named_where_it_would_say_nothing_or_nobody_is_prompt() -> None:
    late, prompt = rank_with(1, forward=31), rank_with(0, forward=1)
    assert phase(straggler(1, category="data_loading"), prompt, late) is None
    assert phase(straggler(1, in_turns=True), prompt, late) is None
    assert [row.phase for row in name_causes([straggler(0), straggler(1)], [prompt, late], {})] == [None, None]
