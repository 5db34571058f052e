"""How many samples a rank's step has, from real loaders and modules."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from perfkit.record.script.hooks.pass_hooks import Annotations, ForwardPasses
from perfkit.record.script.replica_checks import ReplicaChecks
from perfkit.record.script.samples import COUNTED_STEPS, SampleCounter, StepSamples

LOADER, FORWARD = (StepSamples(count=count, source=source) for count, source in ((8, "loader"), (8, "forward")))  # type: ignore[arg-type]
Step = Callable[[int], object]


def counting(told: int | None = None) -> SampleCounter:
    return SampleCounter(told, ReplicaChecks(enabled=True, is_recorded=lambda: False))


@pytest.fixture
def counter() -> Iterator[SampleCounter]:
    made = counting()
    forward = ForwardPasses(
        None, Annotations(), lambda _: None, lambda error: pytest.fail(str(error)), made.note_inputs
    )
    made.attach()
    forward.calls.install()
    yield made
    forward.calls.remove()
    while made.is_counting:
        made.end_step()


def run(counter: SampleCounter, step: Step, steps: int = COUNTED_STEPS + 2) -> StepSamples:
    for number in range(steps):
        step(number)
        counter.end_step()
    return counter.result()


def loader(batch: int, samples: int = 64, **options: Any) -> Iterator[list[torch.Tensor]]:
    data = TensorDataset(torch.zeros(samples, 4))
    while True:
        yield from DataLoader(data, batch, **options)


def test_a_loaders_batches_are_counted_over_the_micro_steps(counter: SampleCounter) -> None:
    batches = loader(4)

    def step(_number: int) -> None:
        [next(batches) for _ in range(2)]

    assert run(counter, step) == LOADER


def test_a_loader_that_reads_ahead_in_step_0_is_no_disagreement(counter: SampleCounter) -> None:
    batches = loader(8)

    def step(number: int) -> None:
        next(batches)
        if number == 0:
            next(batches)

    assert run(counter, step) == LOADER


def test_workers_and_a_batch_larger_than_the_data_set(counter: SampleCounter) -> None:
    batches = loader(100, samples=8, num_workers=1)
    assert run(counter, lambda _: next(batches)) == LOADER


def test_what_is_evaluated_is_no_sample(counter: SampleCounter) -> None:
    model, batches = nn.Linear(4, 4), loader(8)

    def step(_number: int) -> None:
        model(torch.zeros(8, 4))
        model.eval()
        model(torch.zeros(32, 4))
        model.train()
        with torch.no_grad():
            model(next(batches)[0])

    assert run(counter, step) == FORWARD


def test_only_outermost_modules_with_parameters_count(counter: SampleCounter) -> None:
    model, loss_of = nn.Sequential(nn.Flatten(0, 1), nn.Linear(4, 4)), nn.CrossEntropyLoss()

    def step(_number: int) -> None:
        loss_of(model(torch.zeros(8, 16, 4)), torch.zeros(128, dtype=torch.int64))

    assert run(counter, step) == FORWARD


def test_inputs_by_name_count_and_a_scalar_has_no_dimension(counter: SampleCounter) -> None:
    class Named(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(4, 4)

        def forward(self, batch: dict[str, torch.Tensor], scale: torch.Tensor) -> Any:
            return self.layer(batch["x"]) * scale

    model = Named()
    batch = {"x": torch.zeros(8, 4), "y": torch.zeros(8)}

    def step(_number: int) -> None:
        model(batch, scale=torch.ones(()))

    assert run(counter, step) == FORWARD


@pytest.mark.parametrize(
    ("sizes", "why"),
    [
        ([8, 8, 6, 8], "steps have different numbers: 8, 6, 8"),
        ([(8, 4)] * 4, "the inputs of the model differ in their first dimension"),
        ([], "no DataLoader and no forward pass of a module shows it"),
    ],
)
def test_what_does_not_agree_is_unknown(counter: SampleCounter, sizes: list[Any], why: str) -> None:
    model = nn.Bilinear(2, 2, 1)

    def step(number: int) -> None:
        if number < len(sizes):
            first, second = sizes[number] if isinstance(sizes[number], tuple) else (sizes[number],) * 2
            counter.note_inputs(model, (torch.zeros(first, 2), torch.zeros(second, 2)), {})

    assert run(counter, step) == StepSamples(reason=why)


def test_what_is_told_needs_no_inference(counter: SampleCounter) -> None:
    assert counting(5).result() == StepSamples(count=5, source="told")
    batches = loader(4)

    def step(number: int) -> None:
        next(batches)
        counter.note_given(10 if number % 2 else 6)

    assert run(counter, step) == StepSamples(count=8, source="told")


def test_what_is_told_as_no_whole_number_does_not_count(counter: SampleCounter) -> None:
    counter.note_given(torch.tensor(6))  # type: ignore[arg-type]  # as a mask's sum would be
    counter.end_step()
    assert counter.result() == StepSamples(count=6, source="told")
    counter.note_given("6")  # type: ignore[arg-type]
    counter.note_given(2.5)  # type: ignore[arg-type]
    counter.end_step()
    assert counter.result() == StepSamples(count=6, source="told")


def test_a_run_of_one_step_has_that_one(counter: SampleCounter) -> None:
    batches = loader(8)
    assert run(counter, lambda _: next(batches), steps=1) == LOADER
