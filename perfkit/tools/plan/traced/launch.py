"""The process that traces, and its start: a request as JSON on stdin, the answer as the last line on stdout."""

import os
import subprocess
import sys
from typing import Final

import msgspec
from msgspec import Struct

from perfkit.base.process import child_python
from perfkit.errors import LaunchEnvironmentError, PerfkitError, UsageError
from perfkit.tools.plan.layout import Layout
from perfkit.tools.plan.shape import Tensor


class InputSpec(Struct, frozen=True):
    """One tensor that a module is called with, for all samples of a step of one rank."""

    shape: tuple[int, ...]
    dtype: str


class OwnModule(Struct, frozen=True, kw_only=True):
    """A module of the user's own, by the file and name of the function that builds it."""

    path: str
    function: str
    batch_path: str | None = None
    batch_function: str | None = None
    """Returns the tensors that the module is called with; None takes `inputs`."""
    inputs: tuple[InputSpec, ...] = ()


class TraceRequest(Struct, frozen=True, kw_only=True):
    """Steps to trace."""

    layouts: list[Layout]
    precision: str
    samples: list[int]
    """Of one micro-batch, by layout."""
    stages: list[int]
    """Stage of the pipeline to trace, by layout."""
    gpt: dict[str, int | bool | float] | None = None
    """Options of the GPT workload; None traces `own`."""
    own: OwnModule | None = None


class TracedStep(Struct, frozen=True, kw_only=True):
    """Bytes at the peak of one step, by torch's categories."""

    held: dict[str, int]
    seconds: float


class TracedModel(Struct, frozen=True, kw_only=True):
    """A module's parameters, and the FLOP of one step on one rank."""

    tensors: list[Tensor]
    layers: int
    samples: int
    """Of one rank's step: the first axis of the first input."""
    flops: int


class TraceAnswer(Struct, frozen=True, kw_only=True):
    """The child's answer; with an error, nothing else counts."""

    steps: list[TracedStep] = []
    model: TracedModel | None = None
    """Of a module of the user's own."""
    error: str | None = None


TIMEOUT_S: Final = 1800


def trace(request: TraceRequest) -> TraceAnswer:
    """Return what the steps of a request need, from a separate process.

    Raises:
        UsageError: The module cannot be built, or its step fails.
        LaunchEnvironmentError: The process died, or took longer than half an hour.
    """
    command = child_python("perfkit.tools.plan.traced.launch", "main")
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


def main() -> None:
    """Trace, and answer with steps or with one line about what failed."""
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
    request = msgspec.json.decode(sys.stdin.buffer.read(), type=TraceRequest)
    sys.stdout.write("\n" + msgspec.json.encode(_answer(request)).decode() + "\n")


def _answer(request: TraceRequest) -> TraceAnswer:
    from perfkit.tools.plan.traced.fake_steps import trace_steps  # torch

    try:
        steps, model = trace_steps(request)
    except PerfkitError as error:
        return TraceAnswer(error=str(error))
    # The outermost boundary of this process, which runs modules of the user's own.
    except Exception as error:  # noqa: BLE001
        text = " ".join(f"{type(error).__name__}: {error}".split())
        return TraceAnswer(error=text[:500])
    return TraceAnswer(steps=steps, model=model)
