"""What ends a rank: signals, lost connections, exits of a script. Without torch: the parent of the ranks needs it."""

from typing import Final

from perfkit.base.formatting import text_of
from perfkit.errors import RunError

_PARTS: Final = (
    "connection closed",
    "connection reset",
    "broken pipe",
    "connection refused",
    "remote process exited",
    "connection was likely closed",
    "lost the connection",
    "timed out waiting",
    "collective operation timeout",
    "wait timeout after",
)
"""Parts of the error messages of gloo, NCCL, the store and perfkit's own collectives when a peer is gone or late."""


class TerminatedError(RunError):
    """The process received SIGTERM."""

    exit_code = 143  # 128 + SIGTERM


class HangupError(TerminatedError):
    """The process received SIGHUP."""

    exit_code = 129  # 128 + SIGHUP


def is_due_to_another_rank(message: str) -> bool:
    """Return whether an error is only the sign that another rank is gone, or has not come in time."""
    text = message.lower()
    return any(part in text for part in _PARTS)


def exit_cause(error: BaseException) -> BaseException:
    """Return what ended a script; a `SystemExit` becomes an error that names the exit code."""
    if not isinstance(error, SystemExit):
        return error
    # As in the interpreter: a number is the exit code, anything else is printed and the code is 1.
    how = f"exit code {error.code}" if isinstance(error.code, int) else f"sys.exit({text_of(error.code)!r})"
    return RunError(f"the script ended with {how}")
