"""Steps of series of numbers: how they are written and chosen."""

import pytest

from perfkit.base.formatting import ranges
from perfkit.base.parsing import Ranges, parse_step
from perfkit.base.step_numbers import RESTART
from perfkit.errors import UsageError


def test_ranges_end_with_their_series() -> None:
    steps = [2, 3, 4, RESTART + 2, RESTART + 3, 3 * RESTART + 9]
    assert ranges(steps) == "2-4, 2:2-3, 4:9"


def test_ranges_of_a_series_are_chosen() -> None:
    chosen = Ranges("--steps", "3, 2:3-5")
    assert [step in chosen for step in (3, 4, RESTART + 2, RESTART + 3, RESTART + 5, 2 * RESTART + 4)] == [
        True,
        False,
        False,
        True,
        True,
        False,
    ]
    with pytest.raises(UsageError, match="--steps 2:5: no such step; existing: 3, 2:3, 2:4"):
        chosen.check({3, RESTART + 3, RESTART + 4}, "step")


@pytest.mark.parametrize(("text", "step"), [("0", 0), ("12", 12), ("1:3", 3), ("2:3", RESTART + 3)])
def test_a_step_is_chosen(text: str, step: int) -> None:
    assert parse_step(text, "--step") == step


@pytest.mark.parametrize("text", ["", "-1", "x", "0:3", "2:", ":3", "3-4", "2:3-4", "9" * 19, "1234567:1"])
def test_what_is_no_step_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="give the number of a step, such as 3, or 2:3"):
        parse_step(text, "--step")
