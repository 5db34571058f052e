"""`perfkit input`: measures how fast samples are read, without a model."""

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct
from msgspec.structs import fields

from perfkit.cli.benchmark import Kind, report_options, run_benchmark
from perfkit.cli.config_options import command, options, rank_option, record
from perfkit.cli.typer_app import require_packages
from perfkit.errors import UsageError
from perfkit.records.benchmark import InputBenchmark
from perfkit.storage.report_file import load_input
from perfkit.tools.input.config import InputConfig
from perfkit_workloads.data import SOURCES

if TYPE_CHECKING:
    from perfkit_workloads.data.source import Source

    Sources = Mapping[str, Source[Any]]

_HELP: Final = """Measure how fast samples are read: by source, way to read, workers and files, without a model.

mpiexec, torchrun or srun start the ranks; `-n N` starts N on this host.

Exit codes: 1 batches differ, 3 a condition holds, 4 one cannot be evaluated.

\b
perfkit input --source memory,hdf5 --read per-sample,batched
perfkit input -n 2 --source hdf5,pt --num-workers 0,2 --step 20ms
mpiexec -n 4 perfkit input --source hdf5 --files 4 --data-dir /lustre/me
perfkit input -n 4 --source bin --readers 1
perfkit input --compare old.json --fail-on 'hdf5.rate < -10%'
"""
_KIND: Final = Kind("input", InputBenchmark, load_input, "'hdf5.rate < -10%', 'pt.p99 > 5ms' or 'bin.cold_load > 20ms'")


def _prepare(given: dict[str, Any]) -> tuple[Any, ...]:
    names = [name for kind in _source_configs().values() for name in kind.__struct_fields__]
    of_sources = {name: given.pop(name) for name in names if name in given}
    config = record(InputConfig, given)
    return config, _make_sources(config, of_sources)


def _make_sources(config: InputConfig, given: dict[str, Any]) -> "dict[str, Source[Any]]":
    """Return the sources to measure.

    Raises:
        UsageError: An option is of another source, or a source cannot provide the samples.
        LaunchEnvironmentError: A package that one needs is not installed.
    """
    for name, config_type in _source_configs().items():
        for option in config_type.__struct_fields__:
            if option in given and name not in config.sources:
                raise UsageError(f"{option} is for source {name}, which is not measured: add it to --source")
    sources = {}
    for name in config.sources:
        kind = SOURCES.load(name)
        own = {option: given[option] for option in kind.Config.__struct_fields__ if option in given}
        sources[name] = kind(record(kind.Config, own))
    _check(config, sources)
    return sources


def _check(config: InputConfig, sources: "Sources") -> None:
    from perfkit.tools.input.config import describe_samples  # numpy: not for `--help`

    spec = describe_samples(config.samples, config.sample_bytes, config.seed)
    for series in config.plan_series(sources):
        problem = sources[series.source].find_problem(spec, config.options_of(series))
        if problem:
            raise UsageError(problem)
    packages = [("torch", "run"), *((source.package, source.extra) for source in sources.values())]
    require_packages("perfkit input", packages)
    if (config.files > 1 or config.preload) and not any(source.has_files for source in sources.values()):
        option = "files" if config.files > 1 else "preload"
        raise UsageError(f"{option} has no effect: {config.source} has no files; remove it")


def _source_configs() -> dict[str, type[Struct]]:
    """Return the options of the built-in sources that have any."""
    configs = {name: SOURCES.load(name).Config for name in SOURCES.builtin}
    return {name: config for name, config in configs.items() if fields(config)}


app = command(
    partial(run_benchmark, _KIND, prepare=_prepare),
    [
        rank_option("the ranks of mpiexec, torchrun or srun, else one"),
        *report_options(_KIND),
        *options(InputConfig, "Benchmark", {"worker_start": ("fork", "spawn", "forkserver")}),
        *(one for name, config in _source_configs().items() for one in options(config, f"Source {name}", {})),
    ],
    _HELP,
)
