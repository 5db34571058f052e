"""Which steps of which optimizers are the steps of a script."""

import gc
from concurrent.futures import ThreadPoolExecutor

import torch
from torch.optim import SGD, Adam

from perfkit.capture.script.torch_hooks import OptimizerSteps


def parameters() -> list[torch.nn.Parameter]:
    return [torch.nn.Parameter(torch.zeros(1))]


def test_the_first_optimizer_that_steps_is_counted() -> None:
    steps, first, second = OptimizerSteps(None), SGD(parameters()), Adam(parameters())
    assert [steps.add(optimizer) for optimizer in (first, second, first)] == [True, False, True]
    assert steps.count == 2
    assert steps.seen == {"SGD": 2, "Adam": 1}


def test_the_optimizer_to_count_can_be_named() -> None:
    steps, first, second = OptimizerSteps("Adam"), SGD(parameters()), Adam(parameters())
    assert [steps.add(optimizer) for optimizer in (first, second, first)] == [False, True, False]


def test_steps_in_another_thread_are_not_counted() -> None:
    steps, optimizer = OptimizerSteps(None), SGD(parameters())
    assert steps.add(optimizer)
    with ThreadPoolExecutor(1) as pool:
        assert not pool.submit(steps.add, optimizer).result()


def test_after_an_optimizer_is_gone_the_next_one_is_counted() -> None:
    steps, first, second = OptimizerSteps(None), SGD(parameters()), Adam(parameters())
    assert steps.add(first)
    del first
    gc.collect()
    assert steps.add(second)
