"""Starts the process that traces, and reads its answer."""

import subprocess
from typing import Final

import msgspec

from perfkit.errors import LaunchEnvironmentError, UsageError
from perfkit.planning.traced.messages import TraceAnswer, TraceRequest
from perfkit.util.child_python import child_python

TIMEOUT_S: Final = 1800


def trace(request: TraceRequest) -> TraceAnswer:
    """Return what the steps of a request need, from a separate process.

    Raises:
        UsageError: The module cannot be built, or its step fails.
        LaunchEnvironmentError: The process died, or took longer than half an hour.
    """
    command = child_python("perfkit.planning.traced.child", "main")
    try:
        done = subprocess.run(
            command, input=msgspec.json.encode(request), capture_output=True, timeout=TIMEOUT_S, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise LaunchEnvironmentError(f"--trace took longer than {TIMEOUT_S} s: trace a smaller model") from error
    try:
        answer = msgspec.json.decode(done.stdout.splitlines()[-1], type=TraceAnswer) if done.stdout else None
    except msgspec.MsgspecError:
        answer = None
    if answer is None:
        last = done.stderr.decode("utf-8", "replace").strip().splitlines()[-1:] or ["it gave no answer"]
        raise LaunchEnvironmentError(f"--trace: its process ended with code {done.returncode}: {last[0]}")
    if answer.error is not None:
        raise UsageError(f"--trace: {answer.error}")
    return answer
