"""What the closing line says about the steps of a script."""

import gc
import sys

import pytest
import torch
from torch.optim import SGD, Adam

from perfkit.options.script import ScriptConfig
from perfkit.record.script.outcome import _START_METHODS, describe_steps, explain_no_steps
from perfkit.record.script.step_counter import StepCounter
from tests.unit.record.script.steps.test_step_counter import counter, parameters, stepped, trained


def explain(steps: StepCounter, step_on: str | None = None, modules: tuple[str, ...] = ()) -> tuple[str, bool]:
    return explain_no_steps(ScriptConfig(step_on=step_on), steps, list(modules))


@pytest.fixture(autouse=True)
def no_children(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in _START_METHODS:
        monkeypatch.delitem(sys.modules, name, raising=False)


def train_with_new(steps: StepCounter, make: type[SGD] | type[Adam], count: int) -> None:
    """Train with an optimizer that is gone afterwards, so that the next one may be counted."""
    opt = make(parameters())
    for _ in range(count):
        trained(steps, opt)
    del opt
    gc.collect()


def test_nothing_is_said_where_there_is_no_other_choice() -> None:
    steps, first, second = counter(), SGD(parameters()), Adam(parameters())
    for _ in range(3):
        trained(steps, first)
        trained(steps, second)
    assert describe_steps(steps) == "3 steps"


def test_optimizers_without_a_name_of_their_own_are_told_apart_by_class() -> None:
    optimizers = [torch.optim.SGD(parameters()), torch.optim.SGD(parameters()), torch.optim.Adam(parameters())]
    steps = counter()
    for place, count in ((0, 1), (1, 4), (2, 7)):
        for _ in range(count):
            trained(steps, optimizers[place])
    assert describe_steps(steps) == ("1 step of one SGD (another SGD made 4, Adam made 7: --step-on Adam counts those)")


def test_optimizers_that_follow_each_other_are_each_given_their_own_steps() -> None:
    steps, other = counter(), torch.optim.Adagrad(parameters())
    train_with_new(steps, SGD, 3)
    train_with_new(steps, SGD, 4)
    last = Adam(parameters())
    for optimizer in (last, last, other):
        trained(steps, optimizer)
    assert describe_steps(steps) == "9 steps: 7 of SGD, 2 of Adam (other made 1: --step-on other counts those)"


def test_a_name_that_an_earlier_counted_optimizer_has_is_no_choice() -> None:
    """`--step-on Adam` would count the first Adam, which ended steps before."""
    steps, others = counter(), [Adam(parameters())]
    train_with_new(steps, Adam, 10)
    last = SGD(parameters())
    for optimizer in (*[last] * 20, *others * 100):
        trained(steps, optimizer)
    assert describe_steps(steps) == "30 steps: 10 of Adam, 20 of SGD (another Adam made 100)"


def test_a_name_that_several_uncounted_optimizers_have_is_no_choice() -> None:
    steps, optimizers = counter(), [SGD(parameters()), Adam(parameters()), Adam(parameters())]
    for place, count in ((0, 1), (1, 4), (2, 7)):
        for _ in range(count):
            trained(steps, optimizers[place])
    assert describe_steps(steps) == "1 step of SGD (Adam made 4, Adam made 7)"


def test_an_optimizer_that_is_made_anew_is_one() -> None:
    steps = counter()
    for _ in range(25):  # more than are told apart
        train_with_new(steps, SGD, 2)
    assert describe_steps(steps) == "50 steps"


def test_of_many_optimizers_only_the_counted_one_counts() -> None:
    steps = counter()
    kept = [SGD(parameters()) for _ in range(25)]  # more than are told apart
    for optimizer in (*kept, *kept):
        trained(steps, optimizer)
    assert describe_steps(steps) == "2 steps"
    del optimizer, kept[0]
    gc.collect()
    for _ in range(2):
        train_with_new(steps, SGD, 1)  # of those without a name of their own
    last = SGD(parameters())
    assert [trained(steps, one) for one in (last, kept[20], last)] == [True, False, True]


def test_child_processes_are_mentioned_only_where_there_are_some(monkeypatch: pytest.MonkeyPatch) -> None:
    alone, missed = explain(counter())
    assert (missed, "processes" in alone) == (False, False)
    assert alone.startswith(
        "no step of an optimizer of torch was seen in this process: nothing of it was recorded; for "
    )
    monkeypatch.setitem(sys.modules, _START_METHODS[0], sys)
    assert "those of multiprocessing and those that run it again are recorded" in explain(counter())[0]


def test_what_could_be_counted_instead_is_said() -> None:
    steps = counter()
    for _ in range(40):
        steps.after_backward()
    assert explain(steps)[0].endswith("; 40 backward passes ran: --step-on backward counts those")
    once = counter()
    stepped(once, SGD(parameters()))
    assert "no gradients were computed before the steps of SGD (1 step)" in explain(once)[0]


@pytest.mark.parametrize(
    ("step_on", "what"),
    [
        ("backward", "no backward pass was seen"),
        ("forward", "no such module was called"),
        ("perfkit.step", "perfkit.step() was not called"),
    ],
)
def test_what_did_not_happen_is_said(step_on: str, what: str) -> None:
    text, missed = explain(counter(step_on), step_on)
    assert text.startswith(f"{what} in this process: nothing of it was recorded")
    assert not missed


def test_a_name_that_matches_nothing_is_an_error() -> None:
    steps = counter("Adam")
    trained(steps, SGD(parameters()))
    text, missed = explain(steps, "Adam")
    assert missed
    assert text == "--step-on Adam: no such optimizer has stepped; those that have: SGD (1 step)"
    text, missed = explain(counter("forward:Nett"), "forward:Nett", ("Net", "Linear"))
    assert missed
    assert text == "--step-on forward:Nett: no such module was called; those that were: Net, Linear"
