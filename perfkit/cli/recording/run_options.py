"""The options of `perfkit run WORKLOAD`, and the job that they describe.

Does not import torch: `perfkit run WORKLOAD --help`, the parent of `-n N` and `perfkit sweep` need only the options.
"""

import os
from collections.abc import Callable, Iterable, Sequence
from inspect import Parameter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec
import typer
from msgspec import Struct
from typer.main import get_command

from perfkit.cli.config_options import Layer, command, flag, make_record, merge_layers, options, read_toml
from perfkit.cli.typer_app import require_packages
from perfkit.errors import PluginError, UsageError
from perfkit.options.mesh import parse_mesh
from perfkit.options.recording import refuse_contradiction
from perfkit.options.run import RunConfig, choices_by_accelerator
from perfkit.record.training.pipeline_schedules import DEFAULT_PIPELINE, default_micro_batches
from perfkit.record.training.strategies import STRATEGIES
from perfkit.record.training.strategies.checks import check_parallelism
from perfkit.record.training.strategies.deepspeed_config import read_config
from perfkit.storage.device_table_file import load_device_table
from perfkit_workloads import WORKLOADS
from perfkit_workloads.data import SOURCES, DataOptions

_MONITORING: Final = ("comet", "csv_monitor", "tensorboard", "wandb")
"""Sections of DeepSpeed's configuration about where it reports to."""

if TYPE_CHECKING:
    from perfkit.record.training.job import Job
    from perfkit_workloads.base import Workload

    WorkloadType = type[Workload[Any]]

Start = Callable[[Any, dict[str, Any]], None]


def load_workload(name: str) -> "WorkloadType":
    """Import a workload's class.

    Raises:
        UsageError: There is no such workload.
        PluginError: It is a plug-in that cannot be loaded or used.
    """
    # torch reads this on import, and a plug-in may import it: users can do nothing about its warnings.
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
    return WORKLOADS.load(name)


_EXAMPLES: Final = """\b
perfkit run {name} -n 2                                 two ranks on this host
mpiexec -n 4 perfkit run {name} --dp zero3              under a launcher"""


def application(
    workload: "WorkloadType", arguments: Sequence[str], start: Start, more: Sequence[Parameter] = ()
) -> typer.Typer:
    """Return the command `perfkit run NAME`, with the options of the run, the input sources and the workload.

    Args:
        workload: What to train.
        arguments: What follows the workload's name: they select the source plug-in that adds its options.
        start: Called with the context's `obj` and the options that were given.
        more: Further options, which are not part of the configuration.
    """
    sources = _source_configs(_find_source(workload, arguments))
    _refuse_clashes([RunConfig, DataOptions, workload.Config, *sources.values()])
    choices = {"preset": list(workload.PRESETS), "dp": STRATEGIES.names(), **choices_by_accelerator()}
    parameters = [
        *more,
        *options(RunConfig, "Run", choices),
        *options(DataOptions, "Input", {"source": SOURCES.names()}),
        *(parameter for name, config in sources.items() for parameter in options(config, f"Input ({name})", {})),
        *options(workload.Config, f"Workload (preset {workload.DEFAULT_PRESET})", {}),
    ]
    summary = (workload.__doc__ or "").partition("\n\n")[0]
    return command(start, parameters, f"{summary}\n\n{_EXAMPLES.format(name=workload.name)}")


def make_job(workload: "WorkloadType", values: dict[str, Any], ranks: int | None = None) -> "Job":
    """Build the job from defaults, preset, TOML file and command line; later ones win.

    Raises:
        UsageError: An option, a value or a combination is invalid.
        StoreError: A folder that the workload reads is invalid.
        PluginError: The source is a plug-in that cannot be loaded.
    """
    from perfkit.record.training.job import Job  # numpy: not for `perfkit run --help`

    layers = _layers(workload, values)
    given = [source for layer in layers if isinstance(source := layer.values.get("source"), str)]
    name = [DataOptions().source, *given][-1]
    source_type, sources = SOURCES.load(name), _source_configs(name)
    merged = merge_layers((RunConfig, DataOptions, workload.Config, *sources.values()), layers)
    refuse_contradiction(merged)
    _refuse_other_sources(name, sources, merged)
    run, data = make_record(RunConfig, merged), make_record(DataOptions, merged)
    of_source, config = make_record(source_type.Config, merged), make_record(workload.Config, merged)
    if data.data_dir is None:
        data = msgspec.structs.replace(data, data_dir=str(Path(run.trace_dir) / ".data"))
    trained, source = workload(config), source_type(of_source)
    if ranks is not None:
        run.check_world(ranks)  # first: other checks use the sizes of the mesh
    check_parallelism(trained, run)
    problem = source.find_problem(trained.data_spec(run.seed), data)
    if problem:
        raise UsageError(problem)
    if run.device_table is not None:
        load_device_table(run.device_table)  # errors in it are reported before the ranks start
    return Job(
        workload=trained,
        source=source,
        run=run,
        data=data,
        effective=_flat((run, data, of_source, config)) | _pipeline(run) | _content_of_files(run),
    )


def parse_job(arguments: Sequence[str]) -> "Job":
    """Return the job of `perfkit run ARGUMENTS`, without `--ranks`.

    Raises:
        UsageError: An option, a value or a combination is invalid.
        PluginError: The workload or the source is a plug-in that cannot be loaded.
        typer.TyperException: There is no such option, or a value has the wrong type.
    """
    name, *given = arguments
    workload = load_workload(name)
    values: dict[str, Any] = {}
    parser = get_command(application(workload, given, lambda _, parsed: values.update(parsed)))
    with parser.make_context(f"perfkit run {name}", given) as context:
        parser.invoke(context)
    return make_job(workload, values)


def check_packages(job: "Job") -> None:
    """Refuse a job if a package that it needs is not installed.

    Raises:
        LaunchEnvironmentError: Naming the package.
    """
    extras = {"torch": "run", **job.workload.PACKAGES, **STRATEGIES.load(job.run.dp).PACKAGES}
    source = job.source
    require_packages("perfkit run", [*extras.items(), (source.package, source.extra)])


def _layers(workload: "WorkloadType", values: dict[str, Any]) -> list[Layer]:
    file = read_toml(Path(values["config"])) if "config" in values else Layer("", {})
    preset = values.get("preset") or file.values.get("preset") or workload.DEFAULT_PRESET
    if preset not in workload.PRESETS:
        where = f"{file.origin}: " if file.origin else ""
        raise UsageError(f"{where}preset {preset!r}: choose from {', '.join(workload.PRESETS)}")
    return [Layer(f"preset {preset}", workload.PRESETS[preset]), file, Layer("", values | {"preset": preset})]


def _find_source(workload: "WorkloadType", arguments: Sequence[str]) -> str | None:
    """Return the source that a command line, its TOML file or preset names, before it is parsed; None if none does."""
    file, preset = _value_of("config", arguments), _value_of("preset", arguments)
    written = read_toml(Path(file)).values if file is not None else {}
    options = workload.PRESETS.get(str(preset or written.get("preset") or workload.DEFAULT_PRESET), {})
    source = _value_of("source", arguments) or written.get("source") or options.get("source")
    return source if isinstance(source, str) else None


def _value_of(option: str, arguments: Sequence[str]) -> str | None:
    value = None
    for token, following in zip(arguments, [*arguments[1:], None], strict=False):
        name, equals, text = token.partition("=")
        if name == flag(option):
            value = text if equals else following
    return value


def _source_configs(name: str | None) -> dict[str, type[Struct]]:
    """Return the options by source: of the built-in ones, and of `name` if it is a plug-in."""
    names = [*SOURCES.builtin, *(plugin for plugin in SOURCES.plugin_names() if plugin == name)]
    return {name: SOURCES.load(name).Config for name in names}


def _refuse_other_sources(name: str, sources: dict[str, type[Struct]], values: dict[str, Any]) -> None:
    for other, config in sources.items():
        for field in msgspec.structs.fields(config):
            if other != name and values.get(field.name, field.default) != field.default:
                raise UsageError(f"{field.name} is for source {other}, not {name}")


def _refuse_clashes(configs: Iterable[type[Struct]]) -> None:
    """Refuse two options of one name: those of perfkit never clash, those of a plug-in may."""
    owners: dict[str, type[Struct]] = {}
    for config in configs:
        for name in config.__struct_fields__:
            if name in owners:
                both = f"{owners[name].__qualname__} and {config.__qualname__}"
                raise PluginError(f"option {name} is defined twice, by {both}: rename it in the plug-in")
            owners[name] = config


def _pipeline(run: RunConfig) -> dict[str, Any]:
    """Return the options of a pipeline with their defaults, which depend on its number of ranks."""
    ranks = parse_mesh(run.mesh).get("pp", 1) if run.mesh else 1
    if ranks == 1:
        return {}
    name = run.pp_schedule or DEFAULT_PIPELINE
    return {"pp_schedule": name, "micro_batches": run.micro_batches or default_micro_batches(name, ranks)}


def _content_of_files(run: RunConfig) -> dict[str, str]:
    """Return, for an option that names a file with further options, what the file contains instead of its path.

    Sections about monitoring, which may hold keys of services, are left out.
    """
    if run.ds_config is None:
        return {}
    content = {name: value for name, value in read_config(run.ds_config).items() if name not in _MONITORING}
    return {"ds_config": msgspec.json.encode(content, order="sorted").decode()}


def _flat(records: Sequence[Struct]) -> dict[str, Any]:
    """Return all options by name, with values as JSON has them: equal to what a manifest contains."""
    return {
        name: value for record in records for name, value in msgspec.json.decode(msgspec.json.encode(record)).items()
    }
