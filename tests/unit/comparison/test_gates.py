"""Every kind of gate, evaluated by hand."""

import pytest
from msgspec.structs import replace

from perfkit.comparison.changes import changes
from perfkit.comparison.gates import check_gates, parse_gate
from perfkit.errors import UsageError
from perfkit.schema.common import Finding
from tests.unit.comparison.test_changes import steady

# Before: 100 ms a step, 60 of it compute. After: 105 ms, 65 of it compute; 20 ms of communication in both.
BEFORE, AFTER = steady(60), steady(65)


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
    (result,) = check_gates([parse_gate(expression)], changes([BEFORE], [AFTER]), [BEFORE], [AFTER])
    assert (result.expression, result.state) == (expression, state), result.message


@pytest.mark.parametrize("code", ["run_failed", "run_unfinished", "unreadable_trace", "missing_traces"])
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
        gates = [parse_gate("step_time > +50%")]
        (result,) = check_gates(gates, changes([before], [after]), [before], [after])
        assert result.state == state


def test_a_limit_in_per_cent_is_exact() -> None:
    gates = [parse_gate("compute >= +35%")]
    (result,) = check_gates(gates, changes([steady(100)], [steady(135)]), [steady(100)], [steady(135)])
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
