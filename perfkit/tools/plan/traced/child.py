"""The tracing process: a request as JSON on stdin, the answer as the last line on stdout."""

import os
import resource
import sys

import msgspec

from perfkit.errors import PerfkitError
from perfkit.tools.plan.traced.launch import TraceAnswer, TraceRequest


def main() -> None:
    """Trace, and answer with steps or with one line about what failed."""
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
    request = msgspec.json.decode(sys.stdin.buffer.read(), type=TraceRequest)
    answer = _answer(request)
    sys.stdout.write("\n" + msgspec.json.encode(answer).decode() + "\n")


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
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    return TraceAnswer(steps=steps, model=model, peak_rss_bytes=peak)
