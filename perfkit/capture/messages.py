"""What perfkit says beside a script, whose stdout is its own; errors in one line."""

import sys

from perfkit.errors import PerfkitError, RunError


def print_status(text: str) -> None:
    """Say something in one line on stderr."""
    sys.stderr.write(f"perfkit: {' '.join(text.split())}\n")


def one_line(error: BaseException) -> str:
    """Return an error as one line."""
    if isinstance(error, KeyboardInterrupt):
        return "interrupted"
    text = " ".join(_text_of(error).split())
    if isinstance(error, PerfkitError):
        return text
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def _text_of(value: object) -> str:
    """Return what a script's error says of itself, as text that any file can hold; its `__str__` may fail."""
    try:
        text = str(value)
    except Exception:  # noqa: BLE001  a script's own code
        text = "its text cannot be had"
    return text.encode("utf-8", "backslashreplace").decode()


def exit_cause(error: BaseException) -> BaseException:
    """Return what ended a script, where it has ended itself as an error that says how."""
    if not isinstance(error, SystemExit):
        return error
    # As the interpreter has it: a number is the exit code, anything else is printed and the code is 1.
    how = f"exit code {error.code}" if isinstance(error.code, int) else f"sys.exit({_text_of(error.code)!r})"
    return RunError(f"the script ended with {how}")
