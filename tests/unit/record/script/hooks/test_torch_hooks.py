"""Hooks of torch that tell what a script computes."""

from typing import Any

import pytest
import torch
from torch import nn

from perfkit.record.script.hooks.torch_hooks import after_gradients, device_of, own_parameters


def test_gradients_that_are_returned_are_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    for owner in (torch.autograd, torch.autograd.graph):
        monkeypatch.setattr(owner, "_engine_run_backward", torch.autograd._engine_run_backward)  # type: ignore[attr-defined]
    noted: list[None] = []
    after_gradients(lambda: noted.append(None))
    x = torch.ones(2, requires_grad=True)
    (gradient,) = torch.autograd.grad((3 * x).sum(), x)
    assert gradient.tolist() == [3, 3]
    assert len(noted) == 1
    with pytest.raises(RuntimeError):
        torch.autograd.grad(torch.ones(()), x)
    assert len(noted) == 1


class Noisy(torch.Tensor):
    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        pytest.fail(f"the script would see {func}")


class Private(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.ReLU(), nn.Linear(2, 2, device="meta"), nn.Linear(2, 2))

    def parameters(self, recurse: bool = True) -> Any:
        pytest.fail("the script would see that it is called")

    def named_modules(self, *_: Any, **__: Any) -> Any:
        pytest.fail("the script would see that it is called")


def test_the_device_is_read_without_code_of_the_script() -> None:
    noisy = torch.ones(2, device="meta").as_subclass(Noisy)
    assert device_of(noisy) == torch.device("meta")
    assert device_of(Private()) in (torch.device("meta"), torch.device("cpu"))
    assert device_of([]) is None
    assert device_of(nn.ReLU()) is None


def test_the_parameters_of_a_module_are_those_that_torch_finds() -> None:
    model = nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 1, bias=False))
    model.append(model[0])  # shared
    model.register_module("none", None)
    model.register_parameter("absent", None)
    assert {id(one) for one in own_parameters(model)} == {id(one) for one in model.parameters()}
    assert len(list(own_parameters(Private()))) == 4
