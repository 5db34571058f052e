"""The loss of a script is what its backward passes begin from."""

from collections.abc import Iterator
from typing import Any, cast

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from perfkit.record.monitor.backward_loss import BackwardLoss
from perfkit.record.monitor.step_times import StepTimes
from perfkit.record.monitor.torch_hooks import MonitorHooks
from perfkit.record.step_listener import PauseState


@pytest.fixture
def installed(losses: BackwardLoss) -> Iterator[BackwardLoss]:
    hooks = MonitorHooks(StepTimes(PauseState()), losses)
    losses.wanted = True
    hooks.install()
    yield losses
    hooks.remove()


@pytest.fixture
def losses() -> BackwardLoss:
    found = BackwardLoss()
    found.start()
    return found


def test_several_passes_are_summed(losses: BackwardLoss) -> None:
    assert losses.get() is None
    losses.note(torch.tensor(0.25))
    losses.note(torch.tensor(0.5, requires_grad=True))
    assert losses.get() == 0.75
    losses.start()
    assert losses.get() is None


@pytest.mark.parametrize("subject", [(torch.ones(1),), None, torch.ones(2), torch.ones(1, dtype=torch.complex64)])
def test_what_is_not_one_number_is_no_loss(losses: BackwardLoss, subject: object) -> None:
    losses.note(subject)
    losses.note(torch.tensor(1.0))
    assert losses.get() is None


def test_a_loss_whose_reading_the_program_would_see_is_unknown(losses: BackwardLoss) -> None:
    class Seen(TorchDispatchMode):  # type: ignore[no-untyped-call]
        def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            seen.append(str(function))
            return function(*args, **(kwargs or {}))

    seen = list[str]()
    loss = torch.tensor(1.0)
    with Seen():  # type: ignore[no-untyped-call]
        losses.note(loss)
    assert (losses.get(), seen) == (None, [])
    losses.start()

    def note(one: torch.Tensor) -> torch.Tensor:
        losses.note(one)
        return one

    torch.func.vmap(note)(torch.ones(3))
    assert losses.get() is None


def test_a_mode_for_functions_does_not_see_that_a_loss_is_read(losses: BackwardLoss) -> None:
    class Seen(TorchFunctionMode):
        def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            seen.append(str(function))
            return function(*args, **(kwargs or {}))

    seen = list[str]()
    loss = torch.tensor(2.0)
    with Seen():  # `torch.set_default_device` enters such a mode for good
        losses.note(loss)
    assert (losses.get(), seen) == (2.0, [])


def test_a_backward_pass_of_fake_tensors_is_left_alone(installed: BackwardLoss) -> None:
    with FakeTensorMode():
        torch.nn.Linear(4, 4)(torch.ones(4)).sum().backward()
    assert installed.get() is None


def test_an_error_in_reading_a_loss_does_not_reach_the_backward_pass(
    installed: BackwardLoss, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: object) -> float:
        raise RuntimeError("no")

    weight = torch.ones(1, requires_grad=True)
    loss = (2 * weight).sum()
    monkeypatch.setattr(torch.Tensor, "item", fail)
    loss.backward()  # type: ignore[no-untyped-call]
    assert installed.get() is None
    assert weight.grad is not None


def test_an_iterator_of_losses_is_the_programs(installed: BackwardLoss, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("perfkit.record.monitor.torch_hooks._has_peers", lambda: True)
    weight = torch.ones(2, requires_grad=True)
    torch.autograd.backward(one for one in (weight[0] * 1, weight[1] * 10))  # type: ignore[arg-type]
    assert weight.grad is not None
    assert weight.grad.tolist() == [1, 10]
    assert installed.get() is None


def test_a_loss_that_a_scaler_with_a_scale_of_its_own_has_scaled_is_none(losses: BackwardLoss) -> None:
    from torch.distributed.fsdp import sharded_grad_scaler  # after the hooks in a script

    class Own(torch.amp.GradScaler):
        def scale(self, outputs: Any) -> Any:
            return outputs * 1024

    made = sharded_grad_scaler.ShardedGradScaler
    before = made.scale, Own.scale
    hooks = MonitorHooks(StepTimes(PauseState()), losses)
    losses.wanted = True
    weight = torch.ones(1, requires_grad=True)
    hooks.install()
    try:
        for scaler in (Own("cpu"), made("cpu", process_group=cast("Any", object()))):
            losses.start()
            scaler.scale((3 * weight).sum()).backward()
            assert losses.get() is None
    finally:
        hooks.remove()
    assert (made.scale, Own.scale) == before


def test_a_scaled_loss_is_none(losses: BackwardLoss) -> None:
    hooks = MonitorHooks(StepTimes(PauseState()), losses)
    losses.wanted = True
    weight = torch.ones(1, requires_grad=True)
    hooks.install()
    try:
        for enabled, expected in ((True, None), (False, 3.0)):
            losses.start()
            scaler = torch.amp.GradScaler("cpu", enabled=enabled)
            scaler.scale((3 * weight).sum()).backward()  # type: ignore[no-untyped-call]
            assert losses.get() == expected
    finally:
        hooks.remove()
    (2 * weight).sum().backward()  # type: ignore[no-untyped-call]
    assert losses.get() == 3.0
