"""Losses are kept as numbers, not as tensors, and reading one never waits for a device."""

import gc

import pytest
import torch

from perfkit.errors import UsageError
from perfkit.record.recording.step_measures import LossBuffer, LossLog


def live_tensors() -> int:
    gc.collect()
    return sum(issubclass(type(thing), torch.Tensor) for thing in gc.get_objects())  # isinstance may run properties


def test_a_loss_on_the_cpu_is_a_number_at_once_and_its_tensor_is_not_kept() -> None:
    log = LossLog()
    before = live_tensors()
    for step in range(50):
        log.add(torch.tensor(float(step), requires_grad=True) * 2)
    assert live_tensors() == before
    assert log.values(50) == [2.0 * step for step in range(50)]


def test_numbers_missing_losses_and_losses_that_are_not_finite() -> None:
    log = LossLog()
    for loss in (0.5, None, float("nan"), torch.tensor([[1.5]]), torch.tensor(float("inf"))):
        log.add(loss)
    log.read()
    assert log.values(5) == [0.5, None, None, 1.5, None]
    assert log.values(1) == [0.5]


def test_a_loss_on_a_device_stays_unknown_until_the_device_is_waited_for() -> None:
    log = LossLog()
    log.add(torch.empty((), device="meta"))  # has no value: reading it would raise
    log.add(1.0)
    assert log.values(2) == [None, 1.0]


@pytest.mark.parametrize("count", [0, 1, 1024, 2500])
def test_the_buffer_returns_every_loss_once(count: int) -> None:
    buffer = LossBuffer()
    for _ in range(2):
        for step in range(count):
            buffer.append(torch.tensor(step, dtype=torch.bfloat16 if step < 100 else torch.float32))
        assert buffer.take() == list(range(count))


@pytest.mark.parametrize("shape", [(2,), (0,)])
def test_what_is_not_one_loss_is_refused_in_its_step(shape: tuple[int, ...]) -> None:
    with pytest.raises(UsageError, match=r"a tensor of shape \(\d\) is not one loss"):
        LossLog().add(torch.zeros(shape))


def test_a_loss_that_is_not_kept_is_the_last_one_until_the_next() -> None:
    log = LossLog()
    log.add(1.0)
    log.add(2.0, kept=False)
    assert (log.last(), log.values(9)) == (2.0, [1.0])
    log.add(torch.ones((), device="meta"), kept=False)
    log.read()
    assert (log.last(), log.values(9)) == (None, [1.0])
