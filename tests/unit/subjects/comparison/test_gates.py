"""Every kind of gate, evaluated by hand."""

from collections.abc import Sequence

import pytest
from msgspec.structs import replace

from perfkit.errors import UsageError
from perfkit.records.common import Finding
from perfkit.records.run import RunReport
from perfkit.subjects.comparison.gates import parse_gate
from tests.support.reports.worded import changes, check_gates
from tests.unit.subjects.comparison.test_changes import steady

# Before: 100 ms a step, 60 of it compute. After: 105 ms, 65 of it compute; 20 ms of communication in both.
BEFORE, AFTER = steady(60), steady(65)


def state_of(
    expression: str, before: Sequence[RunReport], after: Sequence[RunReport], noise: float | None = None
) -> tuple[str, str]:
    """The state of a gate and its message."""
    found = changes(before, after, assumed_noise=noise)
    (result,) = check_gates([parse_gate(expression)], found, before, after)
    return result.state, result.message


@pytest.mark.parametrize(
    ("expression", "state"),
    [
        ("step_time > +5%", "passed"),
        ("step_time >= +5%", "failed"),
        ("step_time > +4.9%", "failed"),
        ("step_time < -1%", "passed"),
        ("step_time>104ms", "failed"),
        ("step_time > 0.2s", "passed"),
        ("step_time <= 105000us", "failed"),
        ("compute > +8%", "failed"),
        ("communication > 19%", "failed"),
        ("communication > 20%", "passed"),
        ("communication > 19.9ms", "failed"),
        ("samples_per_s < 600", "failed"),
        ("samples_per_s < -0.1%", "passed"),
        ("load.max > 15ms", "passed"),
        ("efficiency.transfer < 0.8", "passed"),
        ("efficiency.load_balance < 80%", "failed"),
        ("efficiency.nothing < 0.8", "not_evaluated"),
        ("mfu < 0.4", "not_evaluated"),
        ("step_time > 30%", "not_evaluated"),
        ("step_time > 3", "not_evaluated"),
        ("samples_per_s > 3ms", "not_evaluated"),
        ("samples_per_s < 95%", "not_evaluated"),
        ("memcpy > +5%", "not_evaluated"),
        ("no_such > 5", "not_evaluated"),
    ],
)
def test_a_condition_is_decided(expression: str, state: str) -> None:
    before, after = [BEFORE] * 3, [AFTER] * 3
    (result,) = check_gates([parse_gate(expression)], changes(before, after), before, after)
    assert (result.expression, result.state) == (expression, state), result.message


@pytest.mark.parametrize("expression", ["step_time > +5%", "samples_per_s < -5%", "step_time < -50%"])
def test_a_change_between_single_runs_is_not_decided_without_an_assumption(expression: str) -> None:
    state, message = state_of(expression, [steady(60)], [steady(80)])
    assert state == "not_evaluated"
    assert "cannot be told from noise with 1 run before and 1 after" in message
    assert state_of("step_time > 104ms", [steady(60)], [steady(80)])[0] == "failed"  # a limit is not a change


@pytest.mark.parametrize(
    ("expression", "after_ms", "noise", "state"),
    [
        ("step_time > +5%", 80, 0.03, "failed"),
        ("step_time > +5%", 64, 0.03, "passed"),  # +4 %
        ("step_time > +3%", 64, 0.05, "not_evaluated"),
        ("step_time > -5%", 60, 0.03, "failed"),  # no improvement at all
        ("step_time > -5%", 52, 0.1, "not_evaluated"),
        ("step_time > -5%", 52, 0.03, "passed"),
    ],
)
def test_assumed_noise_decides_between_single_runs(expression: str, after_ms: int, noise: float, state: str) -> None:
    assert state_of(expression, [steady(60)], [steady(after_ms)], noise)[0] == state


def test_a_gate_and_the_headline_follow_one_rule() -> None:
    before = [steady(ms) for ms in (60, 64, 75)]
    noisy, clear = [steady(ms) for ms in (61, 76, 80)], [steady(ms) for ms in (100, 104, 115)]
    assert "within run-to-run variation" in state_of("step_time > +5%", before, noisy)[1]
    assert state_of("step_time > +5%", before, noisy)[0] == "not_evaluated"
    assert state_of("step_time > +20%", before, noisy)[0] == "passed"
    assert state_of("step_time > +5%", before, clear)[0] == "failed"
    # An assumption does not replace what repeats show.
    assert state_of("step_time > +5%", before, noisy, 0.01)[0] == "not_evaluated"


@pytest.mark.parametrize(
    "code", ["run_failed", "run_unfinished", "unreadable_trace", "damaged_trace", "missing_traces"]
)
def test_incomplete_runs_pass_no_gate(code: str) -> None:
    lost = Finding(code=code, severity="warning", message="rank 1 is lost", rank=1)
    for before, after in (([BEFORE], [replace(AFTER, findings=[lost])]), ([replace(BEFORE, findings=[lost])], [AFTER])):
        (result,) = check_gates([parse_gate("step_time > +50%")], changes(before, after), before, after)
        assert result.state == "not_evaluated"
        assert "rank 1 is lost" in result.message


def test_gates_are_evaluated_if_the_same_rank_is_missing_on_both_sides() -> None:
    missing = Finding(code="ranks_missing", severity="warning", message="trace missing for 1 of 2 ranks; excluded")
    one = [replace(run, findings=[missing], ranks=run.ranks[:1]) for run in (BEFORE, AFTER)]
    for before, after, state in ((one[0], one[1], "passed"), (BEFORE, one[1], "not_evaluated")):
        gates = [parse_gate("step_time > 1s")]
        (result,) = check_gates(gates, changes([before], [after]), [before], [after])
        assert result.state == state


def test_a_limit_in_per_cent_is_exact() -> None:
    gates = [parse_gate("compute >= +35%")]
    before, after = [steady(100)] * 3, [steady(135)] * 3
    (result,) = check_gates(gates, changes(before, after), before, after)
    assert result.state == "failed"


def test_gates_do_not_match_operator_names() -> None:
    (result,) = check_gates([parse_gate("addmm > 5ms")], changes([BEFORE], [AFTER]), [BEFORE], [AFTER])
    assert result.state == "not_evaluated"
    assert "step_time" in result.message  # what there is


@pytest.mark.parametrize(
    "wrong",
    [
        *("", "step_time", "step_time > fast", "step_time == 5ms", "step_time > +5ms", "step_time > 5 %%", "> 5ms"),
        *("__import__('os')", "step_time > 1e9", "step_time > +", "a.b.c > 1", "step_time > " + "9" * 99),
    ],
)
def test_an_invalid_gate_is_refused(wrong: str) -> None:
    with pytest.raises(UsageError, match="--fail-on"):
        parse_gate(wrong)


def test_who_asks_for_idle_time_by_the_name_that_reports_use_is_told_the_name_of_the_metric() -> None:
    state, message = state_of("idle > 5%", [steady(60)], [steady(80)])
    assert (state, "no metric idle (all idle time is `overhead`)" in message) == ("not_evaluated", True)
    assert "overhead`" not in state_of("no_such > 5", [steady(60)], [steady(80)])[1]
