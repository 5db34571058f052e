"""Annotations are in the trace, and nowhere else."""

from typing import Any

import pytest
import torch
from torch.overrides import TorchFunctionMode
from torch.profiler import ProfilerActivity, profile
from torch.utils._python_dispatch import TorchDispatchMode

from perfkit.record.spans import annotated


class Operators(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.seen: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.seen.append(str(func))
        return func(*args, **(kwargs or {}))


class Functions(TorchFunctionMode):
    def __init__(self) -> None:
        self.seen: list[str] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.seen.append(func.__name__)
        return func(*args, **(kwargs or {}))


def doubled(inputs: torch.Tensor) -> torch.Tensor:
    with annotated("span"):
        return inputs * 2


def test_a_span_is_an_annotation_that_the_modes_of_the_program_do_not_see() -> None:
    operators, functions = Operators(), Functions()
    with profile(activities=[ProfilerActivity.CPU]) as profiler, operators, functions:
        doubled(torch.ones(1))
    assert operators.seen == ["aten.ones.default", "aten.mul.Tensor"]
    assert functions.seen == ["ones", "mul"]
    (span,) = (event for event in profiler.events() or [] if event.name == "span")
    assert span.is_user_annotation


@pytest.mark.filterwarnings("ignore:.torch.jit.trace. is deprecated")
def test_a_traced_model_has_no_spans() -> None:
    graph = torch.jit.trace(doubled, torch.ones(1)).graph  # type: ignore[no-untyped-call]
    assert [node.kind() for node in graph.nodes()] == ["prim::Constant", "aten::mul"]
