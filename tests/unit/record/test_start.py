"""`perfkit.start` and what it returns, in one process."""

import inspect
import time
from pathlib import Path

import pytest
import torch

import perfkit
from perfkit.errors import UsageError
from perfkit.storage.run_folder import read_manifest


def test_a_loop_is_recorded_between_start_and_stop(tmp_path: Path) -> None:
    prof = perfkit.start(tmp_path / "mine", schedule="wait=1,warmup=1,active=1", workload="toy", device="cpu")
    loader = [torch.randn(4, 4) for _ in range(5)]
    for batch in prof.batches(loader):
        with prof.phase("forward"):
            loss = (batch @ batch).mean()
        prof.step(loss)
    prof.stop()
    prof.stop()  # does nothing
    manifest = read_manifest(prof.folder)
    assert (manifest.state, manifest.workload, len(manifest.step_kinds)) == ("completed", "toy", 5)
    assert manifest.ranks[0].loss[0] == pytest.approx((loader[0] @ loader[0]).mean().item())
    (run,) = perfkit.analyze(prof.folder).runs
    assert [len(rank.steps) for rank in run.ranks] == [1]
    with pytest.raises(UsageError, match=r"prof.step\(\) after prof.stop\(\)"):
        prof.step()


def test_what_a_loop_marks_as_loading(tmp_path: Path) -> None:
    prof = perfkit.start(tmp_path / "mine", schedule="wait=1,warmup=1,active=2", monitor=True, device="cpu")
    for _ in range(5):
        with perfkit.data_loading():
            time.sleep(0.005)
        torch.ones(4, 4).sum()
        prof.step()
    prof.stop()
    with perfkit.data_loading():  # of no step any more
        pass
    (run,) = perfkit.analyze(prof.folder).runs
    spans_ns = [step.loads.spans_ns for step in run.ranks[0].steps]
    assert [len(spans) for spans in spans_ns] == [1, 1]
    assert min(min(spans) for spans in spans_ns) >= 5_000_000
    assert (perfkit.steps(prof.folder)["data_ns"] >= 5_000_000).all()


def test_it_takes_what_profile_takes(tmp_path: Path) -> None:
    assert inspect.signature(perfkit.start).parameters == inspect.signature(perfkit.profile).parameters
    prof = perfkit.start(tmp_path / "mine", monitor=True, capture_when=("every=10000",), device="cpu")
    prof.step()
    prof.stop()
    assert len(perfkit.steps(prof.folder)) == 1
    with pytest.raises(UsageError, match="capture"):
        perfkit.start(tmp_path / "other", capture_when=("now",))


def test_a_wrong_schedule_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="schedule"):
        perfkit.start(tmp_path / "mine", schedule="active=none")
    assert not list(tmp_path.iterdir())


def test_stop_with_an_error_marks_the_run_as_failed(tmp_path: Path) -> None:
    prof = perfkit.start(tmp_path / "mine", device="cpu")
    prof.step()
    prof.stop(ValueError("no luck"))
    assert read_manifest(prof.folder).state == "failed"


def test_what_is_no_duration_and_no_answer_to_a_hang_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="--hang-after 1"):
        perfkit.start(tmp_path / "mine", hang_after="1ms")
    with pytest.raises(UsageError, match="on_hang='stop': choose from report, end"):
        perfkit.start(tmp_path / "mine", on_hang="stop")  # type: ignore[arg-type]
    assert not list(tmp_path.iterdir())
