"""Hashes of batches and parameters, of real tensors and optimizers."""

from collections import UserDict
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import nn
from torch.profiler import profile

from perfkit.record.script.replica_checks import ReplicaChecks
from perfkit.records.manifest import ReplicaCheck


def checking(*, enabled: bool = True, recorded: bool = False) -> ReplicaChecks:
    return ReplicaChecks(enabled=enabled, is_recorded=lambda: recorded)


def hashes(*inputs: Any) -> list[str]:
    checks = checking()
    for one in inputs:
        checks.note_inputs(one if isinstance(one, tuple) else (one,))
        checks.end_step()
    result = checks.result(is_whole_batch=False)
    return result.batches if result else []


def test_a_change_of_any_part_of_a_batch_is_seen() -> None:
    batch = torch.randn(64, 64, generator=torch.Generator().manual_seed(1))
    whole = hashes(batch)
    assert whole == hashes(batch.clone()) == hashes(batch.to(torch.float64).to(torch.float32))
    assert len({*whole, *(hashes(batch.clone().index_fill_(0, torch.tensor([row]), 0))[0] for row in range(64))}) == 65
    assert hashes(batch.view(32, 128)) != whole
    assert hashes(batch.requires_grad_()) == whole
    assert hashes((batch, {"y": torch.arange(8)})) != hashes((batch, {"y": torch.arange(8) + 1}))
    assert hashes(batch.to(torch.bfloat16)) != hashes(batch.to(torch.bfloat16) + 1)


def test_tensors_are_found_however_a_batch_is_nested() -> None:
    @dataclass
    class Batch:
        x: torch.Tensor

    first, second = torch.zeros(4), torch.ones(4)
    for made in (lambda x: ([x, 3],), lambda x: {"a": {"b": x}}, lambda x: Batch(x), lambda x: UserDict(a=[x])):
        assert len({*hashes(made(first)), *hashes(made(first.clone())), *hashes(made(second))}) == 2


def test_what_is_between_elements_is_read_with_them() -> None:
    images = torch.arange(48.0).reshape(2, 3, 2, 4).to(memory_format=torch.channels_last)
    assert hashes(images) == hashes(images.clone()) != hashes(images + 1)
    assert hashes(images[:, :, :, ::2]) != hashes(images[:, :, :, 1::2])  # parts of a batch
    assert hashes(torch.zeros(1).expand(4)) != hashes(torch.ones(1).expand(4))


def test_what_is_not_in_memory_that_can_be_read_is_unknown() -> None:
    assert hashes(torch.zeros(4, device="meta")) == hashes(3) == []
    assert hashes(nn.Parameter(torch.zeros(2))) == []


def test_each_of_the_first_steps_has_a_hash_of_all_that_it_begins_with() -> None:
    assert len(hashes(*(torch.full((4,), value) for value in range(9)))) == 4
    checks = [checking() for _ in range(2)]
    for number, one in enumerate(checks):
        one.note_inputs((torch.zeros(4),))
        one.note_inputs((torch.full((4,), number),))
        one.end_step()
        one.end_step()  # an evaluation
    known = [one.result(is_whole_batch=False) for one in checks]
    assert [len(one.batches) for one in known if one] == [1, 1]
    assert known[0] != known[1]


def test_a_loaders_batches_count_if_the_model_gets_all_their_samples_and_its_inputs_are_unknown() -> None:
    def noted(inputs: torch.Tensor) -> ReplicaChecks:
        checks = checking()
        checks.note_batch([torch.ones(8), torch.zeros(8)])
        checks.note_inputs((inputs,))
        checks.end_step()
        return checks

    on_device = noted(torch.zeros(8, device="meta"))
    assert on_device.result(is_whole_batch=False) is None
    loaded = on_device.result(is_whole_batch=True)
    assert loaded is not None
    assert loaded.batches == loaded.loaded
    given = noted(torch.zeros(8)).result(is_whole_batch=True)
    assert given is not None
    assert given.batches == hashes(torch.zeros(8)) != loaded.batches
    assert given.loaded == loaded.loaded


def test_hashes_leave_nothing_in_a_trace() -> None:
    batch = torch.randn(64, 64)
    with profile() as recorded:
        hashes(batch)
    assert not [event.name for event in recorded.events() if event.name.startswith("aten::")]


def trained(model: nn.Module, *, updates: int = 4, **options: bool) -> ReplicaCheck | None:
    checks, optimizer = checking(**options), torch.optim.SGD(model.parameters(), 0.1)
    for _ in range(updates):
        model(torch.ones(2, 4)).sum().backward()
        checks.before_update(optimizer)
        optimizer.step()
    return checks.result(is_whole_batch=False)


def layers(head: int = 0) -> nn.Module:
    torch.manual_seed(0)
    body = nn.Sequential(*(nn.Linear(4, 4) for _ in range(12)))
    torch.manual_seed(head)
    return nn.Sequential(body, nn.LayerNorm(4), nn.Linear(4, 3))


def test_parameters_are_read_before_the_first_and_the_third_update() -> None:
    check = trained(layers())
    assert check is not None
    assert check.parameters == sum(one.numel() for one in layers().parameters())
    assert check.initial != check.updated
    assert trained(layers()) == trained(layers(), updates=3) == check
    assert trained(layers(), updates=2) is None
    other = trained(layers(head=1))  # the smallest matrix alone differs
    assert other is not None
    assert other.initial != check.initial


@pytest.mark.parametrize("options", [{"recorded": True}, {"enabled": False}])
def test_nothing_is_read_in_recorded_steps_or_if_it_is_switched_off(options: dict[str, bool]) -> None:
    assert trained(nn.Linear(4, 4), **options) is None


def test_an_optimizer_that_cannot_be_hashed_and_memory_that_was_given_back_disturb_nothing() -> None:
    class Compared(torch.optim.SGD):
        def __eq__(self, other: object) -> bool:
            return self is other

        __hash__ = None  # type: ignore[assignment]

    checks, model = checking(), nn.Linear(4, 4)
    checks.before_update(Compared(model.parameters(), lr=0.1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model.weight.untyped_storage().resize_(0)
    for _ in range(3):
        checks.before_update(optimizer)
    assert checks.result(is_whole_batch=False) is None
