"""Which events end the steps of a script, and what `--step-on` accepts."""

import gc
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch.optim import SGD, Adam, Optimizer

from perfkit.errors import UsageError
from perfkit.options.script import StepRule
from perfkit.record.script.step_counter import StepCounter


def parameters() -> list[torch.nn.Parameter]:
    return [torch.nn.Parameter(torch.zeros(1))]


def counter(step_on: str | None = None) -> StepCounter:
    return StepCounter(StepRule.parse(step_on))


def trained(steps: StepCounter, optimizer: Optimizer) -> bool:
    steps.after_backward()
    return steps.after_optimizer_step(optimizer, in_backward=False)


def stepped(steps: StepCounter, optimizer: Optimizer) -> bool:
    return steps.after_optimizer_step(optimizer, in_backward=False)


def test_the_first_optimizer_that_steps_is_counted() -> None:
    steps, first, second = counter(), SGD(parameters()), Adam(parameters())
    assert [trained(steps, optimizer) for optimizer in (first, second, first)] == [True, False, True]
    assert steps.count == 2
    assert steps.seen.by_class() == {"SGD": 2, "Adam": 1}


def test_steps_of_one_backward_pass_are_one_step() -> None:
    steps, optimizer = counter(), SGD(parameters())  # as with a group of parameters at a time
    ended = [trained(steps, optimizer), *(stepped(steps, optimizer) for _ in range(4)), trained(steps, optimizer)]
    assert ended == [True, False, False, False, False, True]


def test_a_step_that_only_creates_the_state_of_an_optimizer_is_none() -> None:
    steps, optimizer = counter(), Adam(parameters())
    assert not stepped(steps, optimizer)
    assert trained(steps, optimizer)
    assert steps.count == 1


def test_steps_without_any_backward_pass_are_counted_from_the_second_on() -> None:
    steps, optimizer = counter(), SGD(parameters())
    assert [stepped(steps, optimizer) for _ in range(3)] == [False, True, True]


def test_gradients_may_be_computed_without_a_backward_pass() -> None:
    """As torch's zero-bubble pipelines do on some ranks and not on others: all must count the same steps."""
    steps, optimizer = counter(), SGD(parameters())
    ended = []
    for _ in range(2):
        steps.after_gradients()
        ended += [stepped(steps, optimizer), stepped(steps, optimizer)]
    assert ended == [True, False, True, False]
    assert (steps.count, steps.backward_passes) == (2, 0)


def test_steps_inside_a_backward_pass_are_one_step_at_its_end() -> None:
    steps, optimizers = counter(), [SGD(parameters()) for _ in range(30)]
    for _ in range(3):
        assert not any(steps.after_optimizer_step(optimizer, in_backward=True) for optimizer in optimizers)
        assert steps.after_backward()
    assert steps.count == 3
    assert steps.seen.by_class() == {"SGD": 90}
    assert steps.others() == []


def test_an_update_that_a_scaler_skips_is_a_step() -> None:
    steps, optimizer = counter(), SGD(parameters())
    steps.after_backward()
    assert steps.after_scaler_step(optimizer)
    assert trained(steps, optimizer)
    assert not steps.after_scaler_step(optimizer)
    assert (steps.count, steps.skipped) == (2, 1)


def test_the_optimizer_to_count_can_be_named() -> None:
    steps, first, second = counter("Adam"), SGD(parameters()), Adam(parameters())
    assert [trained(steps, optimizer) for optimizer in (first, second, first)] == [False, True, False]


def test_the_optimizer_to_count_can_be_a_variable_or_an_attribute() -> None:
    class Trainer:
        def __init__(self) -> None:
            self.opt_d, self.opt_g = SGD(parameters()), SGD(parameters())

        def run(self, steps: StepCounter) -> list[bool]:
            return [self._train(steps, optimizer) for optimizer in (self.opt_d, self.opt_g, self.opt_d)]

        def _train(self, steps: StepCounter, optimizer: Optimizer) -> bool:
            return trained(steps, optimizer)  # both are called `optimizer` here

    assert Trainer().run(counter("opt_g")) == [False, True, False]
    critic, generator = SGD(parameters()), SGD(parameters())
    steps = counter("generator")
    assert [trained(steps, optimizer) for optimizer in (critic, generator)] == [False, True]
    assert steps.counted is not None
    assert steps.counted.names == ("generator", "optimizer")


def test_optimizers_that_step_as_often_are_no_other_choice() -> None:
    steps, first, second, rare = counter(), SGD(parameters()), Adam(parameters()), SGD(parameters())
    for step in range(6):
        for optimizer in (first, second, rare)[: 3 if step == 5 else 2]:
            trained(steps, optimizer)
    assert [(seen.names[0], seen.steps) for seen in steps.others()] == [("rare", 1)]


def test_steps_in_another_thread_are_not_counted() -> None:
    steps, optimizer = counter(), SGD(parameters())
    assert trained(steps, optimizer)
    with ThreadPoolExecutor(1) as pool:
        assert not pool.submit(trained, steps, optimizer).result()


def test_steps_in_the_next_thread_are_counted_once_the_one_before_has_ended() -> None:
    steps, optimizer = counter(), SGD(parameters())
    for _ in range(2):  # epochs
        with ThreadPoolExecutor(1) as pool:
            assert pool.submit(trained, steps, optimizer).result()
            assert not trained(steps, optimizer)
    assert trained(steps, optimizer)


def test_after_an_optimizer_is_gone_the_next_one_is_counted() -> None:
    steps, first, second = counter(), SGD(parameters()), Adam(parameters())
    assert trained(steps, first)
    del first
    gc.collect()
    assert trained(steps, second)


def test_backward_passes_forward_passes_and_marks_can_end_steps() -> None:
    optimizer = SGD(parameters())
    assert counter("backward").after_backward()
    assert not counter("backward").after_optimizer_step(optimizer, in_backward=False)
    assert counter("forward").after_forward()
    assert not counter("forward").after_backward()
    assert counter("perfkit.step").after_marker()
    assert not counter("perfkit.step").after_backward()
    assert not counter().after_forward()


def test_from_the_first_mark_on_only_marks_end_steps() -> None:
    steps, optimizer = counter(), SGD(parameters())
    assert trained(steps, optimizer)
    assert not steps.after_marker()  # the step that has just been counted
    assert not trained(steps, optimizer)
    assert steps.after_marker()
    assert steps.count == 2


@pytest.mark.parametrize(
    ("text", "kind", "name"),
    [
        (None, "optimizer", None),
        ("Adam", "optimizer", "Adam"),
        ("backward", "backward", None),
        ("forward", "forward", None),
        ("forward:Net", "forward", "Net"),
        ("perfkit.step", "marker", None),
        ("perfkit.step()", "marker", None),
    ],
)
def test_what_can_end_a_step(text: str | None, kind: str, name: str | None) -> None:
    rule = StepRule.parse(text)
    assert (rule.kind, rule.name) == (kind, name)


@pytest.mark.parametrize("text", ["", "forward:", "back ward", "optimizer.step()"])
def test_what_cannot_end_a_step(text: str) -> None:
    with pytest.raises(UsageError, match="--step-on"):
        StepRule.parse(text)
