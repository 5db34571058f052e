"""Processes that try what may crash, hang or take long: importing torch, a backend, the profiler."""

import json
import subprocess
from typing import Any, Final

from perfkit.util.child_python import child_python

_LONGEST_S: Final = 180.0
"""Importing torch from a busy parallel file system can take minutes."""


class ProbeError(Exception):
    """The process ended without an answer; the message contains why."""


def ask_child(module: str, function: str, *arguments: str) -> dict[str, Any]:
    """Return the answer of a function that prints JSON as its last line, called in a new process.

    Raises:
        ProbeError: It failed, was killed, or took too long.
    """
    command = [*child_python(module, function), *arguments]
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=_LONGEST_S)
    except subprocess.TimeoutExpired as error:
        raise ProbeError(f"no answer within {_LONGEST_S:.0f} s") from error
    lines = done.stdout.splitlines()
    if done.returncode or not lines:
        errors = [line for line in done.stderr.splitlines() if line.strip()]
        raise ProbeError(errors[-1] if errors else f"ended with {done.returncode}")
    answer: dict[str, Any] = json.loads(lines[-1])
    return answer
