"""Hooks where autograd's engine is entered, and leaves `torch.autograd.backward` and `grad` what they are."""

import functools
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch._guards import TracingContext, tracing

from perfkit.record import autograd_engine
from perfkit.record.autograd_engine import hook_engine


def counting(calls: list[Any]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    def wrap(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def counted(*args: Any, **kwargs: Any) -> Any:
            calls.append(args[0])
            return function(*args, **kwargs)

        return counted

    return wrap


def test_passes_that_accumulate_and_those_that_return_gradients_are_told_apart() -> None:
    autograd: Any = torch.autograd
    public, engine = (autograd.backward, autograd.grad), autograd._engine_run_backward
    backwards, grads = list[Any](), list[Any]()
    undo = [hook_engine(counting(backwards), accumulates=True), hook_engine(counting(grads), accumulates=False)]
    try:
        assert (autograd.backward, autograd.grad) == public
        weight = torch.ones(2, requires_grad=True)
        loss = (3 * weight).sum()
        (gradient,) = torch.autograd.grad(loss, weight, retain_graph=True)
        assert (len(backwards), len(grads), gradient.tolist()) == (0, 1, [3, 3])
        loss.backward(retain_graph=True)  # type: ignore[no-untyped-call]
        assert (len(backwards), len(grads)) == (1, 1)
        assert backwards[0][0] is loss
        with tracing(TracingContext(None)):  # as while torch.compile traces a training step
            loss.backward()
        assert (len(backwards), len(grads)) == (1, 1)
    finally:
        for one in reversed(undo):
            one()
    assert autograd._engine_run_backward is engine
    assert autograd.graph._engine_run_backward is engine


def test_one_of_two_hooks_is_removed_after_the_compiler_was_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Such as the monitor's, which ends before the recorder's."""
    loaded: list[Callable[[], None]] = []
    monkeypatch.setattr(autograd_engine, "run_after_import", lambda _, then: loaded.append(then))
    monkeypatch.setattr(autograd_engine, "uncompiled", lambda function: functools.wraps(function)(partial(function)))
    for owner in (torch.autograd, torch.autograd.graph):
        monkeypatch.setattr(owner, "_engine_run_backward", owner._engine_run_backward)
    first, second = list[Any](), list[Any]()
    undo = [hook_engine(counting(calls), accumulates=True) for calls in (first, second)]
    for then in reversed(loaded):
        then()
    undo[0]()
    torch.ones(1, requires_grad=True).sum().backward()  # type: ignore[no-untyped-call]
    assert len(second) == 1


@pytest.mark.parametrize("left", [None, object()])
def test_a_torch_whose_compiler_does_not_tell_what_it_traces(left: object, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch._guards.TracingContext", left)
    calls = list[Any]()
    undo = hook_engine(counting(calls), accumulates=True)
    try:
        torch.ones(1, requires_grad=True).sum().backward()  # type: ignore[no-untyped-call]
    finally:
        undo()
    assert len(calls) == 1
