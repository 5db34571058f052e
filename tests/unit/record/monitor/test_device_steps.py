"""Steps on an accelerator: their records wait for its events, in order, and never make it wait.

No accelerator is needed: its module is a stand-in whose events are reached when the test says so.
"""

import math
from types import SimpleNamespace

import pytest
import torch

from perfkit.record.monitor.device_steps import MOST_WAITING, DeviceSteps
from perfkit.records.monitor import LOSS_GIVEN, StepRecord


class Device:
    def __init__(self) -> None:
        self.now_ms = 0.0
        self.next_ms = 0.0
        self.capturing = False

    def make_event(self, enable_timing: bool) -> "Event":
        assert enable_timing
        assert not self.capturing
        return Event(self)


class Event:
    def __init__(self, device: Device) -> None:
        self._device = device
        self.at_ms = math.inf

    def record(self, _stream: object) -> None:
        self.at_ms = self._device.next_ms

    def query(self) -> bool:
        assert not self._device.capturing, "a question to the device breaks the capture"
        return self._device.now_ms >= self.at_ms

    def elapsed_time(self, end: "Event") -> float:
        assert end.query(), "this would wait"
        return end.at_ms - self.at_ms


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> Device:
    made = Device()
    module = SimpleNamespace(
        Event=made.make_event, current_stream=lambda _: None, is_current_stream_capturing=lambda: made.capturing
    )
    monkeypatch.setattr(torch, "get_device_module", lambda _: module)
    monkeypatch.setattr(torch.Tensor, "pin_memory", lambda tensor: tensor)  # there is no driver to do it
    return made


def train(
    steps: DeviceSteps, device: Device, number: int, lasts_ms: float, loss: float | None = None
) -> list[StepRecord]:
    steps.begin()
    device.next_ms += lasts_ms
    steps.end(StepRecord(step=number, pause_ns=0), None if loss is None else torch.tensor(loss))
    return list(steps.finished())


def test_a_record_comes_when_the_device_has_finished_the_step(device: Device) -> None:
    steps = DeviceSteps(torch.device("cuda"))
    assert train(steps, device, 0, 20, loss=0.5) == []
    assert train(steps, device, 1, 30) == []
    device.now_ms = 20
    (first,) = steps.finished()
    assert (first.step, first.device_ns, first.loss, first.flags) == (0, 20_000_000, 0.5, LOSS_GIVEN)
    device.now_ms = 100
    first, second = train(steps, device, 2, 10)
    assert (first.step, first.device_ns, first.flags) == (1, 30_000_000, 0)
    assert (second.step, second.device_ns) == (2, 10_000_000)


def test_a_record_does_not_wait_for_a_device_that_hangs(device: Device) -> None:
    steps = DeviceSteps(torch.device("cuda"))
    found = [record for number in range(100) for record in train(steps, device, number, 5, loss=float(number))]
    assert [record.step for record in found] == list(range(100 - MOST_WAITING))
    assert {record.device_ns for record in found} == {-1}
    device.now_ms = 1e9
    rest = list(steps.rest())
    assert [record.loss for record in rest] == [float(record.step) for record in rest]
    assert len(rest) == MOST_WAITING


def test_what_is_left_at_the_end_is_recorded_without_the_device(device: Device) -> None:
    steps = DeviceSteps(torch.device("cuda"))
    train(steps, device, 0, 20)
    train(steps, device, 1, 20)
    device.now_ms = 20
    assert [(record.step, record.device_ns) for record in steps.rest()] == [(0, 20_000_000), (1, -1)]


def test_a_step_that_is_captured_into_a_graph_is_left_alone(device: Device) -> None:
    steps = DeviceSteps(torch.device("cuda"))
    train(steps, device, 0, 20)
    device.capturing, device.now_ms = True, 20
    assert train(steps, device, 1, 20, loss=1.0) == []
    device.capturing = False
    device.now_ms = 1e9
    found = train(steps, device, 2, 10)
    assert [(record.step, record.device_ns) for record in found] == [(0, 20_000_000), (1, -1), (2, 10_000_000)]
