"""The monitor in a loop of one process."""

import math
import threading
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.distributed as dist
from torch.optim.optimizer import _global_optimizer_post_hooks, register_optimizer_step_post_hook
from torch.utils.data import DataLoader, dataloader

import perfkit
from perfkit.errors import UsageError
from perfkit.options.schedule import DEFAULT_SCHEDULE
from perfkit.record.monitor.step_monitor import StepMonitor
from perfkit.record.own_threads import all_threads
from perfkit.records.monitor import LOSS_GIVEN, StepRecord
from perfkit.storage.run_folder import read_manifest
from perfkit.storage.step_log.reader import Records, find_step_logs
from tests.support.monitor.step_logs import read_steps

CPU = torch.device("cpu")


def records_of(run: Path) -> Records:
    return read_steps(find_step_logs(run)[0])


def hooked_functions() -> list[str]:
    loaders, scaler = dataloader._BaseDataLoaderIter, torch.amp.GradScaler
    return [str(function) for function in (loaders.__next__, dist.Work.wait, torch.autograd.backward, scaler.scale)]


def test_a_loop_without_marks_is_followed(tmp_path: Path) -> None:
    model = torch.nn.Linear(8, 8)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    before = hooked_functions()
    with perfkit.monitor(tmp_path / "run", model=model) as mon:
        for step, batch in enumerate(DataLoader(torch.ones(24, 8), batch_size=4)):  # type: ignore[arg-type]
            loss = model(batch).square().mean()
            loss.backward()
            optimizer.step()
            mon.step(math.nan if step == 3 else loss)
    records = records_of(mon.folder)
    assert records["step"].tolist() == [0, 1, 2, 3, 4, 5]
    assert records["kind"].tolist() == [0, 1, 1, 1, 1, 1]
    assert (records["flags"] == LOSS_GIVEN).all()
    assert np.isnan(records["loss"]).tolist() == [False, False, False, True, False, False]
    for name in ("data_ns", "forward_ns", "backward_ns", "optimizer_ns"):
        assert (records[name] > 0).all(), name
        assert (records[name] < records["step_ns"]).all(), name
    assert (records["collective_ns"] == -1).all()
    assert (records["rss_bytes"] > 10_000_000).all()
    assert (records["device_ns"] == -1).all()
    manifest = read_manifest(mon.folder)
    size = find_step_logs(mon.folder)[0].stat().st_size
    assert [(file.kind, file.bytes) for file in manifest.files] == [("step_log", size)]
    assert manifest.state == "completed"
    # Nothing of it stays in torch.
    assert hooked_functions() == before
    assert not [thread for thread in all_threads() if thread.name.startswith("perfkit-monitor")]


def test_marks_and_pauses_of_a_recorded_loop_are_followed(tmp_path: Path) -> None:
    with perfkit.profile(tmp_path / "run", schedule="wait=1,warmup=1,active=1", monitor=True) as prof:
        for _ in prof.batches(range(5)):
            with prof.phase("forward"):
                torch.ones(8) @ torch.ones(8)
            with prof.pause("logging"):
                torch.ones(8) @ torch.ones(8)
            prof.step()
    records = records_of(prof.folder)
    assert records["kind"].tolist() == [0, 2, 3, 0, 1]
    assert (records["data_ns"] >= 0).all()
    assert (records["forward_ns"] > 0).all()
    assert (records["backward_ns"] == -1).all()
    assert (records["pause_ns"] > 0).all()
    assert (records["flags"] == 0).all()
    assert records["step"].tolist() == [0, 1, 2, 3, 4]


def test_an_error_stops_the_monitor_in_one_line_and_not_the_loop(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with perfkit.monitor(tmp_path / "run") as mon:
        assert mon.monitor is not None
        for step in range(5):
            if step == 2:
                assert mon.monitor._log is not None
                mon.monitor._log._descriptor = 1 << 20  # nothing is open there
            mon.step()
    assert mon.steps == 5
    assert records_of(mon.folder)["step"].tolist() == [0, 1]
    lines = [line for line in capfd.readouterr().err.splitlines() if "monitor" in line]
    assert len(lines) == 1
    assert "Bad file descriptor" in lines[0]


@pytest.mark.parametrize("stopped_by", ["a step", "the sampler"])
def test_an_error_within_a_hook_of_the_optimizer_leaves_the_hooks_of_torch_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stopped_by: str
) -> None:
    monitor, heard, own = StepMonitor(), list[int](), list[str]()

    def end_step(*_: object) -> None:
        if stopped_by == "the sampler" and len(own) == 1:
            thread = threading.Thread(target=monitor._give_up, args=(OSError("no"),))
            thread.start()
            thread.join()
        monitor.end_step(len(own), "plain")
        monitor.begin_step()

    def append(values: Iterable[float]) -> None:
        record = StepRecord._make(values)
        heard.append(record.step)
        if stopped_by == "a step" and record.step == 1:
            raise ValueError("no")

    monitor.install()
    monitor.open(tmp_path, 0, 1, CPU)
    assert monitor._log is not None
    monkeypatch.setattr(monitor._log, "append", append)
    weight = torch.nn.Parameter(torch.ones(1))
    optimizer = torch.optim.SGD([weight], lr=0.1)
    handles = [
        register_optimizer_step_post_hook(end_step),
        register_optimizer_step_post_hook(lambda *_: own.append("called")),
    ]
    before = list(_global_optimizer_post_hooks)
    try:
        for _ in range(4):
            weight.square().sum().backward()  # type: ignore[no-untyped-call]
            optimizer.step()
    finally:
        assert list(_global_optimizer_post_hooks) == before
        for handle in handles:
            handle.remove()
        monitor.close()
    assert len(own) == 4
    assert monitor.has_failed
    assert heard == ([0, 1] if stopped_by == "a step" else [0])
    assert not set(before) & set(_global_optimizer_post_hooks)


def test_steps_before_there_is_a_folder_are_in_the_log(tmp_path: Path) -> None:
    monitor = StepMonitor()
    for step in range(4):
        if step == 2:
            monitor.open(tmp_path, 0, 1, CPU)
        monitor.begin_step()
        monitor.end_step(step, "plain")
    monitor.close()
    monitor.end_step(9, "plain")
    assert records_of(tmp_path)["step"].tolist() == [0, 1, 2, 3]


def test_a_loss_on_a_device_is_not_waited_for_before_there_is_a_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = list[str]()
    monkeypatch.setattr(torch.Tensor, "item", lambda loss: asked.append(loss.device.type))
    monitor = StepMonitor()
    monitor.begin_step()
    monitor.end_step(0, "cold", torch.ones((), device="meta"))
    assert not asked
    assert not monitor._before_log[-1].flags & LOSS_GIVEN


def test_the_manifest_has_the_first_steps_and_says_how_many_there_were(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("perfkit.record.profile._MOST_STEPS", 3)
    with perfkit.monitor(tmp_path / "run") as mon:
        for step in range(5):
            assert mon.steps == step
            mon.step(float(step))
            assert mon.last_loss() == step
    assert mon.steps == 5
    assert records_of(mon.folder)["step"].tolist() == [0, 1, 2, 3, 4]
    manifest = read_manifest(mon.folder)
    (record,) = manifest.ranks
    assert manifest.step_kinds == ["cold", "plain", "plain"]
    assert record.loss == [0, 1, 2]
    assert len(record.step_wall_ns) == len(record.load_ns) == 3
    assert manifest.unknown["step_wall_ns"].startswith("of 5 steps the first 3;")
    with perfkit.monitor(tmp_path / "short") as mon:
        mon.step()
    assert not read_manifest(mon.folder).unknown


def test_a_failed_loop_says_how_many_steps_its_manifest_lacks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("perfkit.record.profile._MOST_STEPS", 1)

    def train() -> None:
        with perfkit.monitor(tmp_path / "run") as mon:
            mon.step()
            mon.step()
            raise ValueError("mine")

    with pytest.raises(ValueError, match="mine"):
        train()
    assert read_manifest(tmp_path / "run").unknown["loss"].startswith("of 2 steps the first 1;")


@pytest.mark.parametrize("size", ["3", "lots", "1K"])
def test_a_size_that_is_none_is_refused(tmp_path: Path, size: str) -> None:
    with pytest.raises(UsageError, match="--monitor-bytes"), perfkit.monitor(tmp_path / "run", monitor_bytes=size):
        pass
    assert not list(tmp_path.iterdir())


def test_a_size_without_a_monitor_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no effect without"), perfkit.profile(tmp_path / "run", monitor_bytes="1M"):
        pass


def test_the_manifest_has_the_options_that_are_not_as_by_default(tmp_path: Path) -> None:
    with perfkit.profile(tmp_path / "run", hang_after="90s", sampling=False, detail="time") as prof:
        prof.step()
    config = read_manifest(tmp_path / "run").config
    assert config == {"schedule": DEFAULT_SCHEDULE, "hang_after": "90s", "sampling": False}
