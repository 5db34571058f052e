import subprocess
import sys
from typing import Any, get_type_hints

import msgspec
import pytest

from perfkit.errors import UsageError
from perfkit.options.run import RunConfig
from perfkit_workloads import WORKLOADS
from perfkit_workloads.base import DataSpec, Field, Workload
from perfkit_workloads.data import SOURCES, DataOptions
from perfkit_workloads.data.source import Source
from tests.unit.workloads.conftest import make_source

NOT_CONFIGURED = {"workload", "n", "debug"}
"""Options and arguments of `perfkit run` that are in no configuration."""


def configured(name: str, preset: str) -> Workload[Any]:
    workload = WORKLOADS.load(name)
    values = {k: v for k, v in workload.PRESETS[preset].items() if k != "batch_size"}
    return workload(msgspec.convert(values, workload.Config))


CONFIGS = [DataOptions, *(registry.load(name).Config for registry in (WORKLOADS, SOURCES) for name in registry.builtin)]
PRESETS = [(name, preset) for name in WORKLOADS.builtin for preset in WORKLOADS.load(name).PRESETS]


@pytest.mark.parametrize("name", WORKLOADS.builtin)
def test_every_row_loads_a_workload_of_that_name(name: str) -> None:
    workload = WORKLOADS.load(name)
    assert issubclass(workload, Workload)
    assert workload.name == name
    assert workload.DEFAULT_PRESET in workload.PRESETS


def test_an_unknown_workload_is_refused_with_the_list_of_names() -> None:
    with pytest.raises(UsageError, match=r"'gtp'.*transformer, gpt"):
        WORKLOADS.load("gtp")


def test_an_unknown_source_is_refused_with_the_list_of_names() -> None:
    with pytest.raises(UsageError, match=r"'zarr'.*memory, hdf5, safetensors"):
        SOURCES.load("zarr")


@pytest.mark.parametrize("source", SOURCES.builtin)
def test_every_row_loads_a_source(source: str) -> None:
    loaded = SOURCES.load(source)
    assert issubclass(loaded, Source)
    assert all(name.startswith(f"{source}_") for name in loaded.Config.__struct_fields__)
    assert loaded(loaded.Config()).config == loaded.Config()


@pytest.mark.parametrize("config", CONFIGS)
def test_every_option_has_a_default_and_one_line_of_help(config: type[msgspec.Struct]) -> None:
    hints = get_type_hints(config, include_extras=True)
    for field in msgspec.structs.fields(config):
        assert not field.required, field.name
        described = [meta.description for meta in hints[field.name].__metadata__]
        assert described[-1], field.name
        assert "\n" not in described[-1]


@pytest.mark.parametrize("name", WORKLOADS.builtin)
def test_options_of_a_workload_clash_with_no_general_option(name: str) -> None:
    configs: list[type[msgspec.Struct]] = [
        RunConfig,
        DataOptions,
        *(SOURCES.load(one).Config for one in SOURCES.builtin),
    ]
    general = {field.name for config in configs for field in msgspec.structs.fields(config)}
    own = {field.name for field in msgspec.structs.fields(WORKLOADS.load(name).Config)}
    assert not own & (general | NOT_CONFIGURED)


@pytest.mark.parametrize(("name", "preset"), PRESETS)
def test_every_preset_is_a_valid_configuration(name: str, preset: str) -> None:
    workload = configured(name, preset)
    assert workload.data_spec(seed=0).workload == name
    known = {field.name for field in msgspec.structs.fields(workload.Config)} | {"batch_size"}
    assert set(workload.PRESETS[preset]) <= known


def test_fingerprint_depends_on_every_part_of_the_spec() -> None:
    field = Field(name="x", shape=(2, 3), dtype="float32")
    spec = DataSpec(workload="w", fields=(field,), samples=10, seed=1, parameters={"a": 1})
    changes: list[dict[str, Any]] = [
        {"workload": "v"},
        {"fields": (Field(name="y", shape=(2, 3), dtype="float32"),)},
        {"fields": (Field(name="x", shape=(3, 2), dtype="float32"),)},
        {"fields": (Field(name="x", shape=(2, 3), dtype="int32"),)},
        {"samples": 11},
        {"seed": 2},
        {"parameters": {"a": 2}},
    ]
    specs = [spec, *(msgspec.structs.replace(spec, **change) for change in changes)]
    assert len({s.fingerprint for s in specs}) == len(specs)
    assert spec.fingerprint == msgspec.convert(msgspec.to_builtins(spec), DataSpec).fingerprint
    assert spec.sample_bytes == 24


def test_options_and_text_preparation_import_no_torch() -> None:
    code = """
import sys
import perfkit_workloads.data.text
from perfkit_workloads import WORKLOADS
from perfkit_workloads.data import SOURCES
for registry in (WORKLOADS, SOURCES):
    for name in registry.builtin:
        registry.load(name)
sys.exit(", ".join({"torch", "h5py", "safetensors"} & set(sys.modules)) or 0)
"""
    done = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, text=True)
    assert (done.returncode, done.stderr.strip()) == (0, "")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"prefetch": 4}, "prefetch has no effect without workers"),
        ({"worker_start": "fork"}, "worker_start has no effect without workers"),
        ({"source": "hdf5", "hdf5_compression": "gzip"}, "hdf5_compression needs chunks"),
        ({"source": "hdf5", "hdf5_chunk": 0}, ">= 1.*hdf5_chunk"),
        ({"num_workers": -1}, ">= 0.*num_workers"),
    ],
)
def test_invalid_combinations_are_refused_by_name(options: dict[str, object], message: str) -> None:
    with pytest.raises(msgspec.ValidationError, match=message):
        make_source(**options)


def test_an_unknown_source_is_refused_with_the_other_options() -> None:
    with pytest.raises(msgspec.ValidationError, match="unknown source 'zarr': choose from memory, hdf5, safetensors"):
        msgspec.convert({"source": "zarr"}, DataOptions)


def test_valid_combinations_are_accepted() -> None:
    options = {
        "source": "hdf5",
        "hdf5_chunk": 1,
        "hdf5_compression": "lzf",
        "num_workers": 2,
        "prefetch": 4,
        "worker_start": "spawn",
    }
    source, general = make_source(**options)
    assert (source.config.hdf5_compression, general.prefetch) == ("lzf", 4)
