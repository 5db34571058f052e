"""The traceback of a script's error is that of the script by itself."""

import traceback
from typing import Any

import pytest
import torch

from perfkit.record.monitor.backward_loss import BackwardLoss
from perfkit.record.monitor.step_times import StepTimes
from perfkit.record.monitor.torch_hooks import MonitorHooks
from perfkit.record.recording.loader_watch import stop_watching_loaders, watch_loaders
from perfkit.record.script.hooks.torch_hooks import ModuleCalls
from perfkit.record.script.runner import remove_own_frames
from perfkit.record.step_listener import PauseState


class Watch:
    def begin(self, _subject: Any) -> bool:
        return True

    def end(self, _subject: Any, _failed: bool) -> None: ...


def frames(error: BaseException | None) -> list[str]:
    assert error is not None
    return [frame.name for frame in traceback.extract_tb(error.__traceback__)]


def call_wrongly(model: torch.nn.Module) -> None:
    try:
        model(torch.ones(1, 3))
    except RuntimeError as cause:
        raise ValueError("no loss") from cause


def test_frames_of_a_hook_are_removed_from_an_error_and_its_cause() -> None:
    watch = Watch()
    calls = ModuleCalls(watch.begin, watch.end)
    calls.install()
    try:
        with pytest.raises(ValueError, match="no loss") as caught:
            call_wrongly(torch.nn.Linear(2, 2))
    finally:
        calls.remove()
    assert "hooked" in frames(caught.value.__cause__)
    before = frames(caught.value)
    remove_own_frames(caught.value)
    assert frames(caught.value) == before
    assert "hooked" not in frames(caught.value.__cause__)
    assert frames(caught.value.__cause__)[-1] == "forward"


def test_frames_of_the_monitor_are_removed() -> None:
    hooks = MonitorHooks(StepTimes(PauseState()), BackwardLoss())
    hooks.install()
    try:
        with pytest.raises(RuntimeError, match="does not require grad") as caught:
            torch.ones(1).backward()  # type: ignore[no-untyped-call]
    finally:
        hooks.remove()
    assert "hooked" in frames(caught.value)
    remove_own_frames(caught.value)
    assert "hooked" not in frames(caught.value)


def test_frames_of_the_watch_of_loaders_are_removed() -> None:
    class Samples(torch.utils.data.Dataset[int]):
        def __len__(self) -> int:
            return 1

        def __getitem__(self, _: int) -> int:
            raise KeyError("no sample")

    watch_loaders()
    try:
        with pytest.raises(KeyError) as caught:
            next(iter(torch.utils.data.DataLoader(Samples())))
    finally:
        stop_watching_loaders()
    assert "timed_fetch" in frames(caught.value)
    remove_own_frames(caught.value)
    assert "timed_fetch" not in frames(caught.value)
    assert frames(caught.value).count("__getitem__") == 1  # the script's own


def test_errors_that_lead_to_each_other_in_a_circle() -> None:
    first, second = ValueError(), ValueError()
    first.__context__, second.__context__ = second, first
    remove_own_frames(first)
    assert first.__context__ is second
    assert second.__context__ is first
