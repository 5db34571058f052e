"""Annotates a span of the host's time in the trace, unseen by the program that is recorded.

`torch.profiler.record_function` calls operators: a program's dispatch or function mode sees them, and
`torch.jit.trace` writes them into the graph of its model. What is called here is neither, and costs a third.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import torch
from torch.profiler import record_function

_INTERNAL: Final[Any] = getattr(torch._C, "_autograd", None)
_IS_THERE: Final = hasattr(_INTERNAL, "_record_function_with_args_enter")
"""Whether this torch has the functions: it calls them internal."""


def begin_span(name: str) -> Any:
    """Begin an annotation; returns what `end_span` needs."""
    if _IS_THERE:
        return _INTERNAL._record_function_with_args_enter(name)
    span = record_function(name)
    span.__enter__()  # type: ignore[no-untyped-call]
    return span


def end_span(span: Any) -> None:
    if _IS_THERE:
        _INTERNAL._record_function_with_args_exit(span)
    else:
        span.__exit__(None, None, None)


@contextmanager
def annotated(name: str) -> Iterator[None]:
    span = begin_span(name)
    try:
        yield
    finally:
        end_span(span)
