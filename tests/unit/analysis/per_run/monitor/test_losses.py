"""Since when losses are not a number."""

from math import inf, nan

import numpy as np
import pytest

from perfkit.analysis.per_run.monitor.losses import find_bad_losses, loss_sentence
from perfkit.schema.monitor import LOSS_GIVEN, STEP_DTYPE

WHAT = "the loss is not a number (NaN or infinite)"


def records(*losses: float | None, first: int = 0, together: int = 1) -> np.ndarray:
    """Return the records of steps with these losses; None: unknown."""
    made = np.zeros(len(losses), STEP_DTYPE)
    made["steps"] = together
    made["step"] = first + together * np.arange(len(losses))
    made["flags"] = [0 if loss is None else LOSS_GIVEN for loss in losses]
    made["loss"] = [nan if loss is None else loss for loss in losses]
    return made


def sentence(*ranks: np.ndarray) -> str:
    found = {rank: bad for rank, made in enumerate(ranks) if (bad := find_bad_losses(made)) is not None}
    return loss_sentence(found, len(ranks))


@pytest.mark.parametrize("losses", [(), (1.0, 2.0), (None, None), (1.0, None)])
def test_losses_that_are_numbers_or_unknown_are_not_reported(losses: tuple[float | None, ...]) -> None:
    assert sentence(records(*losses)) == ""


def test_from_a_step_on() -> None:
    assert sentence(records(1.0, nan, 2.0, nan, None, inf, None)) == f"from step 3 on {WHAT}"
    assert sentence(records(nan, nan)) == f"from step 0 on {WHAT}"


def test_a_number_follows() -> None:
    assert sentence(records(1.0, inf, 2.0)) == f"in step 1 {WHAT}"
    assert sentence(records(1.0, nan, nan, 2.0)) == f"in 2 steps, the first of them step 1, {WHAT}"


def test_the_rank_on_which_it_began_is_named() -> None:
    sound, first, second = records(1.0, 1.0, 1.0), records(1.0, nan, nan), records(1.0, 1.0, nan)
    assert sentence(second, first) == f"from step 1 on {WHAT} (first on rank 1)"
    assert sentence(sound, first, first) == f"from step 1 on {WHAT} (first on ranks 1-2)"
    assert sentence(first, first) == f"from step 1 on {WHAT}"


def test_steps_that_are_logged_together_are_known_about() -> None:
    assert sentence(records(1.0, nan, together=8)) == f"from about step 8 on {WHAT}"


def test_of_older_steps_that_are_not_kept_nothing_is_said() -> None:
    assert sentence(records(nan, nan, first=500)) == f"from step 500 or before on {WHAT}"
    assert sentence(records(1.0, nan, first=500)) == f"from step 501 on {WHAT}"


def test_losses_that_are_given_every_few_steps_may_have_been_bad_before() -> None:
    assert sentence(records(1.0, None, None, nan, None, nan)) == f"from step 3 or before on {WHAT}"
    assert sentence(records(None, nan)) == f"from step 1 or before on {WHAT}"
    assert sentence(records(1.0, None, 1.0, nan)) == f"from step 3 on {WHAT}"
