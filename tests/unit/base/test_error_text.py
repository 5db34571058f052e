"""Errors of foreign code whose text fails or is huge."""

from pathlib import Path

import pytest

from perfkit.base.formatting import text_of
from perfkit.errors import RunError
from perfkit.record.lifecycle.failure_guard import FailureGuard
from perfkit.storage.run_folder import read_failure


class UnspeakableError(Exception):
    def __str__(self) -> str:
        raise ValueError("no text")


def test_the_text_of_an_error_may_fail_or_be_huge() -> None:
    assert text_of(UnspeakableError()) == "its message cannot be shown"
    long = text_of(ValueError("x" * 50_000_000))
    assert len(long) < 10_100
    assert long.endswith("x… (50,000,000 characters)")
    assert text_of(ValueError("\ud800")) == r"\ud800"


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (UnspeakableError(), "UnspeakableError: its message cannot be shown"),
        (ValueError("y" * 10**7), "ValueError: yy"),
    ],
)
def test_a_run_that_fails_with_such_an_error_is_recorded_as_failed(
    error: Exception, message: str, tmp_path: Path
) -> None:
    guard = FailureGuard(0, 1, debug=False)
    guard.folder = tmp_path
    with pytest.raises(RunError) as caught, guard:
        raise error
    assert str(caught.value).startswith(f"rank 0: {message}")
    failure = read_failure(tmp_path)
    assert failure is not None
    assert failure.message.startswith(message)
    assert len(failure.message) < 11_000
