"""Hashes of batches and elements of parameters, of real tensors and optimizers."""

from typing import Any

import pytest
import torch
from torch import nn
from torch.profiler import profile

from perfkit.record.script.replica_checks import ReplicaChecks
from perfkit.records.manifest import ReplicaCheck


def hashes(*inputs: Any) -> list[str]:
    checks = ReplicaChecks(enabled=True)
    for one in inputs:
        checks.note_inputs(one if isinstance(one, tuple) else (one,))
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


def test_what_is_not_in_one_piece_in_the_hosts_memory_is_not_read() -> None:
    assert hashes(torch.zeros(4, 4).t()[:3]) == hashes(torch.zeros(4, device="meta")) == hashes(3) == []
    assert hashes(nn.Parameter(torch.zeros(2))) == []


def test_only_the_first_batches_are_hashed() -> None:
    assert len(hashes(*(torch.full((4,), value) for value in range(9)))) == 4


def test_a_loaders_batches_count_if_the_model_gets_all_their_samples_and_its_inputs_are_unknown() -> None:
    def noted(inputs: torch.Tensor) -> ReplicaChecks:
        checks = ReplicaChecks(enabled=True)
        checks.note_batch([torch.ones(8), torch.zeros(8)])
        checks.note_inputs((inputs,))
        return checks

    on_device = noted(torch.zeros(8, device="meta"))
    assert on_device.result(is_whole_batch=False) is None
    loaded = on_device.result(is_whole_batch=True)
    assert loaded is not None
    assert len(loaded.batches) == 1
    given = noted(torch.zeros(8)).result(is_whole_batch=True)
    assert given is not None
    assert given.batches == hashes(torch.zeros(8)) != loaded.batches


def test_hashes_leave_nothing_in_a_trace() -> None:
    batch = torch.randn(64, 64)
    with profile() as recorded:
        hashes(batch)
    assert not [event.name for event in recorded.events() if event.name.startswith("aten::")]


def trained(model: nn.Module, *, recorded: bool = False, enabled: bool = True) -> ReplicaCheck | None:
    checks, optimizer = ReplicaChecks(enabled=enabled), torch.optim.SGD(model.parameters(), 0.1)
    for _ in range(4):
        model(torch.ones(2, 4)).sum().backward()
        checks.after_backward(recorded=recorded)
        optimizer.step()
        checks.after_update(optimizer)
    return checks.result(is_whole_batch=False)


def test_parameters_are_read_once_after_two_updates() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 4), nn.LayerNorm(4), nn.Linear(4, 3))
    check = trained(model)
    assert check is not None
    assert check.parameters_bytes == sum(one.numel() * 4 for one in model.parameters())
    assert len(check.parameters) == 4
    torch.manual_seed(0)
    assert trained(nn.Sequential(nn.Linear(4, 4), nn.LayerNorm(4), nn.Linear(4, 3))) == check
    assert trained(nn.Sequential(nn.Linear(4, 4), nn.LayerNorm(4), nn.Linear(4, 3))) != check


@pytest.mark.parametrize("options", [{"recorded": True}, {"enabled": False}])
def test_nothing_is_read_in_recorded_steps_or_if_it_is_switched_off(options: dict[str, bool]) -> None:
    assert trained(nn.Linear(4, 4), **options) is None
