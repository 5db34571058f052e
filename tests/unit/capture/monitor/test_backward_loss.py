"""The loss of a script is what its backward passes begin from."""

import pytest
import torch

from perfkit.capture.monitor.backward_loss import BackwardLoss
from perfkit.capture.monitor.step_times import StepTimes
from perfkit.capture.monitor.torch_hooks import MonitorHooks


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


def test_a_scaled_loss_is_none(losses: BackwardLoss) -> None:
    hooks = MonitorHooks(StepTimes(lambda: False, lambda: 0), losses)
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
