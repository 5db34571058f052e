"""Since when losses are not a number."""

from math import inf, nan
from typing import Any

import numpy as np
import pytest

from perfkit.records.monitor import LOSS_GIVEN, STEP_DTYPE
from perfkit.subjects.monitor.summarize import find_bad_losses, not_a_number


def records(*losses: float | None, first: int = 0, together: int = 1) -> np.ndarray:
    """Return the records of steps with these losses; None: unknown."""
    made = np.zeros(len(losses), STEP_DTYPE)
    made["steps"] = together
    made["step"] = first + together * np.arange(len(losses))
    made["flags"] = [0 if loss is None else LOSS_GIVEN for loss in losses]
    made["loss"] = [nan if loss is None else loss for loss in losses]
    return made


def found(*ranks: np.ndarray) -> dict[str, Any]:
    """Return what is not the default of a finding about these ranks."""
    bad = {rank: losses for rank, made in enumerate(ranks) if (losses := find_bad_losses(made)) is not None}
    values = not_a_number(bad, len(ranks)).values
    return {name: value for name, value in values.items() if value or name == "first_step"}


@pytest.mark.parametrize("losses", [(), (1.0, 2.0), (None, None), (1.0, None)])
def test_losses_that_are_numbers_or_unknown_are_not_reported(losses: tuple[float | None, ...]) -> None:
    assert find_bad_losses(records(*losses)) is None


def test_from_a_step_on() -> None:
    assert found(records(1.0, nan, 2.0, nan, None, inf, None)) == {"first_step": 3, "steps": 2, "lasting": True}
    assert found(records(nan, nan)) == {"first_step": 0, "steps": 2, "lasting": True}


def test_a_number_follows() -> None:
    assert found(records(1.0, inf, 2.0)) == {"first_step": 1, "steps": 1}
    assert found(records(1.0, nan, nan, 2.0)) == {"first_step": 1, "steps": 2}


def test_the_rank_on_which_it_began_is_named() -> None:
    sound, first, second = records(1.0, 1.0, 1.0), records(1.0, nan, nan), records(1.0, 1.0, nan)
    since_1 = {"first_step": 1, "steps": 2, "lasting": True}
    assert found(second, first) == {**since_1, "ranks": [1]}
    assert found(sound, first, first) == {**since_1, "ranks": [1, 2]}
    assert found(first, first) == since_1


def test_steps_that_are_logged_together_are_known_about() -> None:
    logged = {"first_step": 8, "steps": 8, "lasting": True, "rolled_up": True}
    assert found(records(1.0, nan, together=8)) == logged


@pytest.mark.parametrize(
    ("losses", "first", "step", "or_before"),
    [
        ((nan, nan), 500, 500, True),  # older steps are not kept
        ((1.0, nan), 500, 501, False),
        ((1.0, None, None, nan, None, nan), 0, 3, True),  # given every few steps
        ((None, nan), 0, 1, True),
        ((1.0, None, 1.0, nan), 0, 3, False),
    ],
)
def test_losses_may_have_been_bad_before(
    losses: tuple[float | None, ...], first: int, step: int, or_before: bool
) -> None:
    values = found(records(*losses, first=first))
    assert (values["first_step"], values.get("or_before", False)) == (step, or_before)
