"""Where an optimizer's tensors are, as noted when a step of it begins."""

import pytest
import torch
from torch import nn

from perfkit.record.recording import held_tensors
from perfkit.record.recording.held_tensors import HeldTensors
from perfkit.records.trace_header import RecordedTensors


def steps_of(optimizer: torch.optim.Optimizer, steps: int = 2) -> list[RecordedTensors]:
    held = HeldTensors()
    held.start()
    try:
        for _ in range(steps):
            for group in optimizer.param_groups:
                for parameter in group["params"]:
                    parameter.grad = torch.zeros_like(parameter)
            optimizer.step()
    finally:
        held.stop()
    optimizer.step()  # no longer noted
    records = held.records()
    assert records is not None
    return records


def test_parameters_once_gradients_in_each_step_and_state_when_there_is_some() -> None:
    model = nn.Linear(8, 4)
    first, second = steps_of(torch.optim.Adam(model.parameters()))
    assert [size for _, size in first.parameters] == [4 * 32, 4 * 4]
    assert [address for address, _ in first.parameters] == [p.data_ptr() for p in model.parameters()]
    assert (first.optimizer_state, second.parameters) == ([], [])
    assert [len(record.gradients) for record in (first, second)] == [2, 2]
    assert sorted(size for _, size in second.optimizer_state) == sorted([4 * 32, 4 * 32, 16, 16, 4, 4])
    assert (first.device, first.ns < second.ns) == (-1, True)


def test_views_are_noted_by_their_memory_block_and_the_same_bytes_once() -> None:
    block = torch.zeros(100)
    views = [nn.Parameter(block[:10]), nn.Parameter(block[10:30]), nn.Parameter(block[:10])]
    first, _ = steps_of(torch.optim.SGD(views))
    assert first.parameters == [(block.untyped_storage().data_ptr(), 4 * 30)]


def test_what_has_no_memory_of_its_own_is_left_out() -> None:
    empty, meta = nn.Parameter(torch.zeros(0)), nn.Parameter(torch.zeros(3, device="meta"))
    first, _ = steps_of(torch.optim.SGD([empty, nn.Parameter(torch.zeros(5)), meta]))
    assert [size for _, size in first.parameters] == [20]


def test_too_many_tensors_are_not_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(held_tensors, "_MOST", 3)
    held = HeldTensors()
    held.start()
    optimizer = torch.optim.SGD([nn.Parameter(torch.zeros(2)) for _ in range(4)])
    optimizer.step()
    held.stop()
    assert held.records() is None
