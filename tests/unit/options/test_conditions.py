"""The grammar of `--capture-when`."""

import pytest

from perfkit.errors import UsageError
from perfkit.options.conditions import CaptureRules, Condition, parse_condition, parse_conditions
from perfkit.options.run import RunConfig
from perfkit.options.script import ScriptConfig


@pytest.mark.parametrize(
    ("text", "condition"),
    [
        ("step > 1.5x median", Condition("step > 1.5x median", "step", 1.5)),
        (" step>2 x median ", Condition("step>2 x median", "step", 2)),
        ("loader wait > 30 %", Condition("loader wait > 30 %", "loader", 0.3)),
        ("loader wait>7.5%", Condition("loader wait>7.5%", "loader", 0.075)),
        ("rank late > 20 %", Condition("rank late > 20 %", "late", 0.2)),
        ("every=10000", Condition("every=10000", "every", 10_000)),
        ("every = 100", Condition("every = 100", "every", 100)),
    ],
)
def test_conditions(text: str, condition: Condition) -> None:
    assert parse_condition(text) == condition


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "write 'step > 1.5x median'"),
        ("step < 2x median", "write"),
        ("step > 2 median", "write"),
        ("step > -2x median", "write"),
        ("step > 1x median", "larger than 1"),
        ("step > nanx median", "write"),
        ("loader wait > 0 %", "more than 0 %"),
        ("loader wait > 100 %", "less than 100 %"),
        ("every=99", "at least every=100"),
        ("every=1e3", "write"),
        ("every=" + "9" * 400, "write"),
        ("rank late > 0 %", "more than 0 %"),
        ("rank late by 20 %", "'rank late > 20 %'"),
    ],
)
def test_what_is_refused(text: str, why: str) -> None:
    with pytest.raises(UsageError, match=why):
        parse_condition(text)


def test_one_condition_of_each_form() -> None:
    assert len(parse_conditions(["every=100", "step > 2x median"])) == 2
    with pytest.raises(UsageError, match="one condition of this form"):
        parse_conditions(["every=100", "every=200"])


def test_the_options_of_runs_are_checked_before_they_start() -> None:
    with pytest.raises(UsageError, match="--captures"):
        CaptureRules.parse(["every=100"], -1, "1GiB")
    with pytest.raises(UsageError, match="--capture-bytes"):
        RunConfig(capture_bytes="much")
    with pytest.raises(UsageError, match="--capture-when"):
        RunConfig(capture_when=("often",))
    assert RunConfig(capture_when=("loader wait > 30 %",)).capture_rules.most_bytes == 2 << 30
    with pytest.raises(UsageError, match="needs --monitor"):
        ScriptConfig(capture_when=("loader wait > 30 %",))
    assert ScriptConfig(capture_when=("loader wait > 30 %",), monitor=True).capture_rules.captures == 5


def test_late_ranks_are_only_known_where_their_waits_are_logged() -> None:
    with pytest.raises(UsageError, match="needs --monitor"):
        ScriptConfig(capture_when=("rank late > 20 %",))
    with pytest.raises(UsageError, match="needs --monitor"):
        RunConfig(capture_when=("rank late > 20 %",))
    rules = ScriptConfig(capture_when=("rank late > 20 %",), monitor=True).capture_rules
    rules.refuse_unseen_waits(2, "cpu")
    with pytest.raises(UsageError, match="single rank"):
        rules.refuse_unseen_waits(1, "cpu")
    with pytest.raises(UsageError, match="on cuda:0 the device waits"):
        rules.refuse_unseen_waits(2, "cuda:0")
    ScriptConfig(capture_when=("every=100",)).capture_rules.refuse_unseen_waits(1, "cuda")
