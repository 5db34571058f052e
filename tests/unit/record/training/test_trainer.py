import json
import math
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from perfkit.engine.runs.manifest_checks import compile_findings
from perfkit.errors import LaunchEnvironmentError, UsageError
from perfkit.options.run import RunConfig
from perfkit.options.script import ScriptConfig
from perfkit.record.distributed.torch_environment import collect_log, request_log
from perfkit.record.recording.side_profilers import PythonProfile, check_recorders, make_recorders
from perfkit.record.training.gradient_averaging import buckets
from perfkit.record.training.trainer import checkpoint_activations
from perfkit.records.manifest import Compiled
from perfkit.storage.discovery import find_runs
from perfkit.storage.run_folder import list_files
from perfkit_workloads.base import RateScale, scale_rate
from tests.unit.workloads.conftest import make


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"static_graph": True, "find_unused": True}, "remove --find-unused"),
        ({"static_graph": True, "overlap": False}, "--static-graph has no effect with --no-overlap"),
        ({"find_unused": True, "overlap": False}, "--find-unused has no effect with --no-overlap"),
        ({"compile": True, "bucket_cap_mb": 0.5}, "--bucket-cap-mb 0.5: with --compile"),
        ({"pyinstrument": True, "with_stack": True}, "--with-stack and --pyinstrument"),
        ({"pyinstrument": True, "with_modules": True}, "--with-modules and --pyinstrument"),
        ({"pyinstrument": True, "profile": False}, "--pyinstrument has no effect with --no-profile"),
        ({"memory_snapshot": True, "profile": False}, "--memory-snapshot has no effect with --no-profile"),
    ],
)
def test_invalid_combinations(options: dict[str, object], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        RunConfig(**options)  # type: ignore[arg-type]


def test_what_the_device_or_the_backend_does_not_have() -> None:
    RunConfig(nccl_debug="info").check_place("cuda", "nccl")
    RunConfig(memory_snapshot=True).check_place("cuda", "gloo")
    with pytest.raises(UsageError, match="--nccl-debug needs the backend nccl; this run uses gloo"):
        RunConfig(nccl_debug="info").check_place("cuda", "gloo")
    with pytest.raises(UsageError, match="--memory-snapshot needs a CUDA device; this run uses xpu"):
        RunConfig(memory_snapshot=True).check_place("xpu", "xccl")


def test_steps_of_epochs_take_several_batches() -> None:
    config = RunConfig(epochs=3, accumulate=4, profile=False)
    assert [config.total_steps(batches) for batches in (2, 4, 5)] == [1, 3, 3]
    with pytest.raises(UsageError, match="--epochs 3 of 1 batches are fewer than the --accumulate 4"):
        config.total_steps(1)


@pytest.mark.parametrize(("scale", "factor"), [("linear", 6.0), ("sqrt", math.sqrt(6)), ("none", 1.0)])
@pytest.mark.parametrize("workload", ["gpt", "transformer"])
def test_rates_grow_with_ranks_and_micro_steps(workload: str, scale: RateScale, factor: float) -> None:
    assert scale_rate(0.1, scale, 6) == pytest.approx(0.1 * factor)
    options = {"warmup_steps": 0} if workload == "gpt" else {}
    made = make(workload, lr_scale=scale, learning_rate=0.1, **options)
    model = made.build()
    optimization = made.optimization(model, world_size=2, accumulate=3, total_steps=4, device_type="cpu")
    assert optimization.optimizer.param_groups[0]["lr"] == pytest.approx(0.1 * factor)


def gradients(*mib: float, dtype: torch.dtype = torch.float32) -> list[Tensor]:
    return [torch.empty(round(size * (1 << 20) / dtype.itemsize), dtype=dtype) for size in mib]


def sizes(made: list[list[Tensor]]) -> list[list[float]]:
    return [[tensor.nbytes / (1 << 20) for tensor in bucket] for bucket in made]


def test_buckets_are_those_of_ddp() -> None:
    assert sizes(list(buckets(gradients(20, 6, 1, 0.5, 0.75), None))) == [[0.75, 0.5], [1, 6, 20]]
    assert sizes(list(buckets(gradients(1, 1, 1), 2.0))) == [[1, 1], [1]]
    mixed = [*gradients(1), *gradients(1, dtype=torch.float16)]
    assert [bucket[0].dtype for bucket in buckets(mixed, 8.0)] == [torch.float16, torch.float32]
    assert list(buckets([], None)) == []


@pytest.mark.parametrize("name", ["gpt", pytest.param("transformer", marks=pytest.mark.slow)])  # 7 s
def test_checkpointed_activations_are_computed_twice_and_change_nothing(name: str) -> None:
    workload = make(name, dropout=0.25)
    batch = {field: torch.from_numpy(array) for field, array in workload.generate(workload.data_spec(0), 0, 4).items()}

    def train(checkpointed: bool) -> tuple[list[Tensor], int]:
        torch.manual_seed(0)
        model = workload.build()
        layers = workload.layers(model)
        if checkpointed:
            checkpoint_activations(layers)
        calls: list[nn.Module] = []
        inner = next(module for module in layers[0].modules() if isinstance(module, nn.LayerNorm))
        inner.register_forward_hook(lambda module, *_: calls.append(module))
        torch.autograd.backward(workload.loss(model, batch))
        return [parameter.grad for parameter in model.parameters() if parameter.grad is not None], len(calls)

    (plain, once), (again, twice) = train(False), train(True)
    assert (once, twice) == (1, 2)
    assert len(plain) == len(again) > 0
    for a, b in zip(plain, again, strict=True):
        torch.testing.assert_close(a, b)


def test_what_a_compiled_run_reports() -> None:
    kinds = ["cold", "plain", "active", "active"]

    def codes(compiled: Compiled | None) -> list[str]:
        return [finding.code for finding in compile_findings(compiled, kinds)]  # type: ignore[arg-type]

    assert codes(None) == []
    assert codes(Compiled(graphs=2, steps=[0, 1])) == []
    assert codes(Compiled(graphs=0, steps=[])) == ["not_compiled"]
    assert codes(Compiled(graphs=1, steps=[0, 2])) == ["compilation_recorded"]
    assert codes(Compiled(graphs=1, steps=[-1, 4, 2**62])) == []  # a manifest from elsewhere: there are no such steps
    (finding,) = compile_findings(Compiled(graphs=1, steps=[0, 2, 3]), kinds)  # type: ignore[arg-type]
    assert finding.values == {"recorded": [2, 3]}


def test_the_python_profile_is_three_files_and_no_trace(tmp_path: Path) -> None:
    (recorder,) = make_recorders(RunConfig(pyinstrument=True))
    assert isinstance(recorder, PythonProfile)
    assert make_recorders(RunConfig()) == make_recorders(ScriptConfig()) == []
    assert isinstance(make_recorders(ScriptConfig(pyinstrument=True))[0], PythonProfile)
    recorder.start()
    _busy_for_a_while()
    recorder.stop()
    recorder.stop()  # as after an error
    _not_recorded()
    recorder.write(tmp_path / "rank0.cycle1")
    found = {file.path: (file.kind, file.rank, file.cycle) for file in list_files(tmp_path)}
    stem = "rank0.cycle1.pyinstrument"
    assert found == dict.fromkeys((f"{stem}.html", f"{stem}.speedscope.json", f"{stem}.txt"), ("python_profile", 0, 1))
    text = (tmp_path / f"{stem}.txt").read_text()
    assert "_busy_for_a_while" in text
    assert "_not_recorded" not in text
    frames = json.loads((tmp_path / f"{stem}.speedscope.json").read_text())["shared"]["frames"]
    assert "_busy_for_a_while" in {frame["name"] for frame in frames}
    assert "<html" in (tmp_path / f"{stem}.html").read_text()
    (tmp_path / "rank0.json").write_text("{}")
    assert [path.name for location in find_runs([tmp_path]) for path in location.traces] == ["rank0.json"]


def _busy_for_a_while() -> None:
    time.sleep(0.05)


def _not_recorded() -> None:
    time.sleep(0.05)


def test_a_missing_package_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    check_recorders(RunConfig(pyinstrument=True))
    monkeypatch.setitem(sys.modules, "pyinstrument", None)
    check_recorders(RunConfig())
    with pytest.raises(LaunchEnvironmentError, match="--pyinstrument needs pyinstrument"):
        check_recorders(RunConfig(pyinstrument=True))


def test_nccls_log_can_be_moved_while_it_is_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("NCCL_DEBUG", "NCCL_DEBUG_FILE"):
        monkeypatch.setenv(name, "")  # so that it is restored
    trace_dir, folder = tmp_path / "traces", tmp_path / "traces" / "run"
    request_log("info", trace_dir, 3)
    folder.mkdir()
    collect_log(folder, 3)  # nothing was written
    assert list_files(folder) == []
    assert os.environ["NCCL_DEBUG"] == "INFO"
    with Path(os.environ["NCCL_DEBUG_FILE"]).open("w") as log:
        log.write("before\n")
        log.flush()
        collect_log(folder, 3)
        log.write("after\n")
    assert (folder / "rank3.nccl.log").read_text() == "before\nafter\n"
    assert [(file.kind, file.rank) for file in list_files(folder)] == [("nccl_log", 3)]
    assert [path.name for path in trace_dir.iterdir()] == ["run"]


@pytest.mark.slow
def test_training_imports_distributed_tensors_only_for_strategies_that_use_them() -> None:
    code = """
import subprocess
import sys
from perfkit.record.training import worker
slow = "torch.distributed.tensor", "torch.distributed.fsdp", "torch.distributed.pipelining"
sys.exit(", ".join(set(slow) & set(sys.modules)) or 0)
"""
    done = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, text=True)
    assert (done.returncode, done.stderr.strip()) == (0, "")
