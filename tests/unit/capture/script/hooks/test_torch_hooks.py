"""Hooks of torch that tell what a script computes."""

import pytest
import torch

from perfkit.capture.script.hooks.torch_hooks import after_gradients


def test_gradients_that_are_returned_are_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.autograd, "grad", torch.autograd.grad)
    noted: list[None] = []
    after_gradients(lambda: noted.append(None))
    x = torch.ones(2, requires_grad=True)
    (gradient,) = torch.autograd.grad((3 * x).sum(), x)
    assert gradient.tolist() == [3, 3]
    assert len(noted) == 1
    with pytest.raises(RuntimeError):
        torch.autograd.grad(torch.ones(()), x)
    assert len(noted) == 1
