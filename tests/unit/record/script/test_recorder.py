"""Nothing that perfkit does in a hook reaches the script."""

import threading
import time
import warnings
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from perfkit.options.script import ScriptConfig
from perfkit.record.script.hooks.pass_hooks import Annotations, BackwardPasses, ForwardPasses
from perfkit.record.script.recorder import ScriptRecorder
from perfkit.storage.run_folder import read_manifest


@pytest.fixture
def recorder(tmp_path: Path) -> ScriptRecorder:
    config = ScriptConfig(trace_dir=str(tmp_path / "traces"), workload="train", step_on="backward")
    return ScriptRecorder("train.py", [], config, time.perf_counter_ns(), Path(config.trace_dir))


@pytest.mark.parametrize(("busy_s", "called"), [(0.0, "leave_at_once"), (0.1, "leave_at_once"), (60.0, "fail_at_once")])
def test_a_script_that_ends_at_once_waits_a_little_for_the_end_of_a_step(
    busy_s: float, called: str, recorder: ScriptRecorder
) -> None:
    calls: dict[str, Any] = {}
    names = ("leave_at_once", "fail_at_once")
    run: Any = SimpleNamespace(**{name: lambda *args, name=name: calls.update({name: args}) for name in names})
    recorder._run, recorder._busy = run, busy_s > 0
    end_of_step = threading.Timer(busy_s, lambda: setattr(recorder, "_busy", False))
    end_of_step.start()
    recorder._on_exit_at_once(3)
    end_of_step.cancel()
    assert list(calls) == [called]
    if called == "fail_at_once":
        assert str(calls[called][0]) == "ended with exit code 3 (os._exit) while perfkit ended a step"


@pytest.mark.parametrize("error", [AssertionError("Expected np.nditer base"), KeyError("a"), MemoryError()])
def test_an_error_of_a_hook_is_one_line(
    error: Exception, recorder: ScriptRecorder, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail() -> bool:
        raise error

    recorder._note(None, fail)
    recorder._note(None, fail)
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"perfkit: error: {type(error).__name__}")
    assert line.endswith("train.py is not recorded any further")


def test_an_error_at_the_start_of_the_recording_is_one_line(
    recorder: ScriptRecorder, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(*_: Any) -> Any:
        raise AssertionError("torch has changed")

    monkeypatch.setattr("perfkit.record.script.recorder.ScriptRankGroup", fail)
    for _ in range(3):
        recorder._on_backward(torch.zeros(1))
    assert capsys.readouterr().err == (
        "perfkit: error: AssertionError: torch has changed: train.py is not recorded any further\n"
    )


def test_a_run_whose_recording_cannot_start_has_failed_for_that_reason(
    recorder: ScriptRecorder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any, **__: Any) -> Any:
        raise OSError("no space left")

    monkeypatch.setattr("perfkit.record.script.script_run.Recording", fail)
    for _ in range(3):
        recorder._on_backward(torch.zeros(1))
    recorder.end(None)
    (run,) = (tmp_path / "traces").iterdir()
    manifest = read_manifest(run)
    assert manifest.failure is not None
    assert (manifest.state, manifest.failure.message) == ("failed", "OSError: no space left")
    assert not list(run.glob(".*"))


def test_a_model_on_the_device_meta_is_recorded(recorder: ScriptRecorder, capsys: pytest.CaptureFixture[str]) -> None:
    recorder._on_backward(torch.zeros(1, device="meta"))
    assert recorder.has_begun
    recorder.end(None)
    assert "error" not in capsys.readouterr().err


@pytest.mark.parametrize("steps_too", [True, False])
def test_a_backward_pass_of_another_thread_matters_only_if_the_one_that_steps_has_none(
    steps_too: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = ScriptConfig(trace_dir=str(tmp_path / "traces"), workload="train")
    recorder, loss = (
        ScriptRecorder("train.py", [], config, time.perf_counter_ns(), Path(config.trace_dir)),
        torch.zeros(1),
    )
    if steps_too:
        recorder._on_backward(loss)
    other = threading.Thread(target=recorder._on_backward, args=(loss,))
    other.start()
    other.join()
    recorder._on_optimizer_step(torch.optim.SGD([loss]))
    assert recorder.has_begun == steps_too
    assert ("another thread than backward passes" in capsys.readouterr().err) != steps_too
    recorder.end(None)


def test_an_error_of_an_annotation_does_not_reach_the_script(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: Any) -> Any:
        raise AttributeError("record_function")

    annotations, errors, ended = Annotations(), list[Exception](), list[Any]()
    monkeypatch.setattr("perfkit.record.script.hooks.pass_hooks.begin_span", fail)
    annotations.enable(True)
    backward = BackwardPasses(annotations, ended.append, errors.append)
    forward = ForwardPasses(None, annotations, ended.append, errors.append)
    assert not backward.begin(torch.zeros(1))
    assert not forward.begin(torch.nn.Linear(1, 1))
    assert [str(error) for error in errors] == ["record_function"] * 2
    assert ended == []


def test_a_forward_pass_is_the_outermost_call_of_a_module_with_parameters() -> None:
    ended: list[torch.nn.Module] = []
    annotations = Annotations()
    forward = ForwardPasses(None, annotations, ended.append, lambda error: pytest.fail(str(error)))
    inner = torch.nn.Linear(2, 2)
    model = torch.nn.Sequential(inner, torch.nn.ReLU())
    forward.calls.install()
    try:
        torch.nn.functional.mse_loss(torch.nn.MSELoss()(model(torch.ones(1, 2)), torch.ones(1, 2)), torch.ones(()))
        assert ended == [model]
        with pytest.raises(RuntimeError):
            model(torch.ones(1, 3))
        inner(torch.ones(1, 2))
        assert ended == [model, inner]
    finally:
        forward.calls.remove()
    model(torch.ones(1, 2))
    assert ended == [model, inner]


def test_the_class_of_the_module_can_be_chosen() -> None:
    ended: list[torch.nn.Module] = []
    forward = ForwardPasses("Linear", Annotations(), ended.append, lambda error: pytest.fail(str(error)))
    model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.ReLU())
    forward.calls.install()
    try:
        model(torch.ones(1, 2))
    finally:
        forward.calls.remove()
    assert ended == [model[0]]
    assert list(forward.seen) == ["Sequential", "Linear", "ReLU"]


def test_modules_of_torchscript_have_a_class_too() -> None:
    forward = ForwardPasses("Linear", Annotations(), lambda _: None, lambda error: pytest.fail(str(error)))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # newer torch warns that it is deprecated
        model = torch.jit.script(torch.nn.Sequential(torch.nn.Linear(2, 2)))
    forward.calls.install()
    try:
        model(torch.ones(1, 2))
    finally:
        forward.calls.remove()
    assert list(forward.seen) == ["RecursiveScriptModule"]


@pytest.mark.parametrize("step_on", ["SGD", "backward", "forward", "forward:Linear"])
def test_forward_passes_are_annotated_whatever_ends_a_step(step_on: str, tmp_path: Path) -> None:
    config = ScriptConfig(trace_dir=str(tmp_path), workload="train", step_on=step_on)
    recorder = ScriptRecorder("train.py", [], config, time.perf_counter_ns(), Path(config.trace_dir))
    assert recorder._forward.begin(torch.nn.Linear(1, 1))
