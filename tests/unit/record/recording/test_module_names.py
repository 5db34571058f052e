"""The names of modules in a trace are those of the modules that were called: the modules mark themselves."""

import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import distributed, nn
from torch._C._distributed_c10d import HashStore
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
from torch.distributed.device_mesh import init_device_mesh
from torch.nn.parallel import DistributedDataParallel
from torch.profiler import ProfilerActivity, profile, record_function

from perfkit.record.recording.module_names import RecordedModules, name_modules
from perfkit.record.recording.trace_export import write_trace
from perfkit.trace.events import MODULE, RankTrace
from perfkit.trace.module_names import LONGEST_NAME, MOST_NAMES, ModuleNames
from perfkit.trace.reader import read_trace


class Marked(nn.Module):
    says = "?"

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        with record_function(f"truth:{self.says}"):
            return self.compute(inputs)

    def compute(self, inputs: torch.Tensor) -> torch.Tensor:
        return inputs + 1


class Attention(Marked):
    def __init__(self) -> None:
        super().__init__()
        self.out = Marked()
        self.weight = nn.Parameter(torch.ones(4))

    def compute(self, inputs: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.out(inputs * self.weight)
        return result


class Model(Marked):
    def __init__(self, layers: int = 3) -> None:
        super().__init__()
        self.layers = nn.ModuleList(Attention() for _ in range(layers))
        self.head = Attention()
        self.shared = self.layers[1]

    def compute(self, inputs: torch.Tensor) -> torch.Tensor:
        for layer in reversed(self.layers):  # the numbers of the trace are not those of the names
            inputs = layer(inputs)
        result: torch.Tensor = self.head(self.shared(inputs))
        return result


def named(model: Model, prefix: str = "") -> Model:
    for name, module in model.named_modules():
        if isinstance(module, Marked):
            module.says = f"{prefix}{name}" if name else ""
    return model


@pytest.fixture
def alone() -> Iterator[None]:
    distributed.init_process_group("gloo", store=HashStore(), rank=0, world_size=1)
    yield
    distributed.destroy_process_group()


def record(path: Path, *models: nn.Module, late: bool = False) -> RankTrace:
    modules = RecordedModules()
    profiler = profile(activities=[ProfilerActivity.CPU], with_stack=True)
    profiler.prepare_trace()
    modules.start()
    profiler.start_trace()
    for model in [*models, *([named(Model())] if late else [])]:
        model(torch.ones(2, 4)).sum().backward()
    profiler.stop_trace()
    write_trace(profiler, path / "rank0.json.gz", modules.names(profiler))
    return read_trace(path / "rank0.json.gz")


def check(trace: RankTrace, least: int) -> ModuleNames:
    """Check that the innermost module around every mark has the name that the mark says."""
    events, frames = trace.events, trace.frames
    is_module = np.array([name.startswith(MODULE) for name in frames.names])[frames.name]
    marks = [row for row in range(len(events.name)) if events.names[events.name[row]].startswith("truth:")]
    assert len(marks) >= least
    for row in marks:
        around = is_module & (frames.start_ns <= events.start_ns[row]) & (frames.end_ns >= events.end_ns[row])
        inner = np.flatnonzero(around)[np.argmax(frames.start_ns[around])]
        instance = frames.names[frames.name[inner]].removeprefix(MODULE)
        assert events.names[events.name[row]].removeprefix("truth:") in frames.modules[instance]
    return frames.modules


def test_nested_and_shared_modules(tmp_path: Path) -> None:
    names = check(record(tmp_path, named(Model())), 11)
    assert names["Model_0"] == ("",)
    assert names["Attention_0"] == ("layers.2",)
    assert names["Attention_1"] == ("layers.1", "shared")
    assert names["Marked_1"] == ("layers.1.out", "shared.out")


def test_several_models(tmp_path: Path) -> None:
    twins = named(Model(), "Model_0."), named(Model(2), "Model_1.")
    check(record(tmp_path, *twins), 20)
    (tmp_path / "other").mkdir()
    names = check(record(tmp_path / "other", named(Model(), "Model."), nn.Sequential(nn.Linear(4, 4))), 11)
    assert names["Linear_0"] == ("Sequential.0",)


def test_a_loss_is_no_second_model(tmp_path: Path) -> None:
    class Loss(nn.Module):
        def forward(self, inputs: torch.Tensor) -> torch.Tensor:
            return inputs.requires_grad_()

    assert check(record(tmp_path, named(Model()), Loss()), 11)["Loss_0"] == ("",)


@pytest.mark.usefixtures("alone")
def test_wrappers_are_no_part_of_names(tmp_path: Path) -> None:
    model = named(Model())
    model.layers[0] = checkpoint_wrapper(model.layers[0])
    names = check(record(tmp_path, DistributedDataParallel(model)), 11)
    assert names["DistributedDataParallel_0"] == names["Model_0"] == ("",)
    assert names["CheckpointWrapper_0"] == ("layers.0",)


@pytest.mark.slow
@pytest.mark.usefixtures("alone")
def test_sharded(tmp_path: Path) -> None:
    from torch.distributed.fsdp import fully_shard  # takes seconds to import: not in the collection of all tests

    model = named(Model())
    for layer in [*model.layers, model.head]:
        fully_shard(layer, mesh=init_device_mesh("cpu", (1,)))
    names = check(record(tmp_path, model), 11)
    assert names["FSDPAttention_0"] == ("layers.2",)


@pytest.mark.slow
@pytest.mark.usefixtures("alone")
def test_sharded_by_the_older_wrapper(tmp_path: Path) -> None:
    model = named(Model())
    model.head = _sharded(model.head)  # type: ignore[assignment]
    check(record(tmp_path, _sharded(model)), 11)


def _sharded(module: nn.Module) -> nn.Module:
    from torch.distributed.fsdp import FullyShardedDataParallel, ShardingStrategy

    sharding = ShardingStrategy.NO_SHARD  # there is one rank
    return FullyShardedDataParallel(module, sharding_strategy=sharding, device_id=torch.device("cpu"))


@pytest.mark.slow
def test_compiled(tmp_path: Path) -> None:
    compiled = torch.compile(nn.Sequential(Attention(), nn.Linear(4, 4)), backend="eager")
    names = record(tmp_path, compiled).frames.modules  # type: ignore[arg-type]
    assert names["OptimizedModule_0"] == ("",)
    assert all(name in ("", "0", "0.out", "1") for of in names.values() for name in of)


def test_modules_made_while_recording_have_no_names(tmp_path: Path) -> None:
    names = record(tmp_path, named(Model()), late=True).frames.modules
    assert "Model_0" in names
    assert "Model_1" not in names


def test_classes_of_one_name_have_no_names(tmp_path: Path) -> None:
    one, other = type("Twin", (Attention,), {})(), type("Twin", (Attention,), {})()
    names = record(tmp_path, nn.Sequential(one, other)).frames.modules
    assert "Twin_0" not in names  # torch numbers both 0
    assert names["Marked_0"] == ("0.out",)


def test_held_by_what_is_not_called(tmp_path: Path) -> None:
    holder = nn.Module()
    holder.model = named(Model(), "model.")
    holder.model.says = "model"
    check(record(tmp_path, holder.model), 11)


def test_of_several_holders_the_called_one_counts(tmp_path: Path) -> None:
    model, other = named(Model()), nn.Module()
    other.copy = model
    outer = nn.Sequential(model)
    for module in model.modules():
        if isinstance(module, Marked):
            module.says = f"0.{module.says}".removesuffix(".")
    check(record(tmp_path, outer), 11)
    assert other.copy is model


def test_bounded() -> None:
    part = nn.Identity()
    for _ in range(60):  # 2^60 paths
        part = nn.Sequential(part, part)  # type: ignore[assignment]
    begin = time.process_time()
    names = name_modules({"Sequential_0": part}, list(part.modules()))
    assert time.process_time() - begin < 5
    assert names == {"Sequential_0": ("",)}
    deep = {f"S_{number}": module for number, module in enumerate(part.modules())}
    found = name_modules(deep, list(part.modules()))
    assert all(len(of) <= MOST_NAMES and all(len(name) <= LONGEST_NAME for name in of) for of in found.values())


def test_a_cycle_has_no_outermost_module() -> None:
    one, other = nn.Module(), nn.Module()
    one.other, other.one = other, one
    assert name_modules({"Module_0": one}, [one, other]) == {}
