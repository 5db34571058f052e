"""Errors for the signals that end a process. Without torch: the parent of the ranks does not import it."""

from perfkit.errors import RunError


class TerminatedError(RunError):
    """The process received SIGTERM."""

    exit_code = 143  # 128 + SIGTERM


class HangupError(TerminatedError):
    """The process received SIGHUP."""

    exit_code = 129  # 128 + SIGHUP
