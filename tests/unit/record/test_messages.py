"""Errors of scripts as one line, whatever their text is."""

import pytest

from perfkit.record.endings import exit_cause
from perfkit.record.messages import one_line


class MuteError(Exception):
    def __str__(self) -> str:
        raise AttributeError("no text")


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (ValueError("two\nlines"), "ValueError: two lines"),
        (ValueError("\udcff"), "ValueError: \\udcff"),
        (MuteError(), "MuteError: its message cannot be shown"),
        (SystemExit("\udcff"), "the script ended with sys.exit('\\\\udcff')"),
        (ValueError("\x1b[31mred\x07\u202e"), "ValueError: \\x1b[31mred\\x07\\u202e"),
        (SystemExit(3), "the script ended with exit code 3"),
    ],
)
def test_an_error_is_a_line_that_any_file_can_hold(error: BaseException, line: str) -> None:
    assert one_line(exit_cause(error)) == line
    line.encode()
