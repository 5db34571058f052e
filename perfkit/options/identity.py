"""Which options identify a configuration, for sweeps, comparisons, histories and scaling series.

Each of those ignores more options where it compares across them (the batch size, for example). The location of a run's
folder never counts.
"""

import hashlib
from collections.abc import Collection, Iterable, Mapping
from functools import cache
from itertools import chain
from pathlib import Path
from typing import Any, Final, Literal, get_args, get_type_hints

import msgspec

from perfkit.errors import PluginError
from perfkit.options.script_arguments import name_arguments
from perfkit.records.run import RunReport

_LONGEST_VALUE: Final = 80
_NAMED_BY_VALUE: Final = ("source", "mesh", "dp")
_BEGINNING: Final = 30

Role = Literal["locates", "supervises", "extent"]
"""What an option's declaration says of it, by a mark of `perfkit.options.recording`; one without affects the steps."""

Settings = dict[str, str]
"""Every option of a run that affects its steps, as text."""


def identity_options(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return a configuration without the location of its run: a sweep that was moved is still the same sweep.

    A `data_dir` that is the default, inside `trace_dir`, becomes None.
    """
    default = str(Path(str(config.get("trace_dir", ""))) / ".data")
    own = {name: value for name, value in config.items() if name not in _with_role("locates")}
    if own.get("data_dir") == default:
        own["data_dir"] = None
    return own


def performance_options(run: RunReport) -> dict[str, Any]:
    """Return the options of `run` that affect what is measured; none without a manifest."""
    without = _with_role("supervises") | ({"data_dir"} if run.source == "memory" else set())
    return {name: value for name, value in identity_options(run.config or {}).items() if name not in without}


def settings(run: RunReport) -> Settings | None:
    """Return what identifies the configuration of `run`, except ranks and batch size; None without a manifest."""
    if run.config is None:
        return None
    own = {
        name: format_option(value)
        for name, value in performance_options(run).items()
        if name not in _with_role("extent")
    }
    if run.source is not None:
        own["source"] = run.source
    own = _with_script_arguments(own, run)
    devices = sorted({host.device_name for host in run.hosts})
    return (
        {"workload": run.workload or ""}
        | own
        | {f"version.{name}": version for name, version in run.versions.items()}
        | ({"device_name": ", ".join(devices)} if devices else {})
        | ({"commit": run.commit[:12]} if run.commit else {})
    )


def _with_script_arguments(own: Settings, run: RunReport) -> Settings:
    """Return settings with each argument of a script as an option of its own, but the one that holds its batch."""
    config = run.config or {}
    arguments = config.get("arguments")
    if "arguments" not in own or not isinstance(arguments, list):
        return own
    rest = {name: value for name, value in own.items() if name != "arguments"}
    named = name_arguments([str(token) for token in arguments])
    named.pop(str(config.get("batch_arg")), None)
    return rest | {_plain_name(name, rest): format_option(value) for name, value in named.items()}


def _plain_name(argument: str, taken: Collection[str]) -> str:
    """Return an argument's name without dashes, unless an option of perfkit has that name."""
    plain = argument.lstrip("-")
    return argument if not plain or plain in taken else plain


def short_name(option: str, value: str) -> str:
    """Return an option and its value in short: only the value where that says which option it is."""
    return value if option in _NAMED_BY_VALUE else f"{option}={value}"


@cache
def _with_role(role: Role) -> frozenset[str]:
    """Return the options of workloads and of scripts that are declared with a role."""
    # Imported late: the report of a single run needs none of it.
    from perfkit.options.run import RunConfig
    from perfkit.options.script import ScriptConfig

    hints = chain.from_iterable(get_type_hints(kind, include_extras=True).items() for kind in (RunConfig, ScriptConfig))
    marks = ((name, mark) for name, hint in hints for mark in get_args(hint) if isinstance(mark, msgspec.Meta))
    return frozenset(name for name, mark in marks if (mark.extra or {}).get("role") == role)


def format_option(value: Any) -> str:
    """Return an option's value as text: `on`, `none`, `2`, `a, b`.

    Of a long one, such as the content of a configuration file, it is the beginning and a digest, which differs between
    different values.
    """
    if isinstance(value, bool):
        return "on" if value else "off"
    if value is None:
        return "none"
    text = ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
    if len(text) <= _LONGEST_VALUE:
        return text
    digest = hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()
    return f"{text[:_BEGINNING]}… ({digest[:8]})"


def key(setting: Settings, without: Collection[str] = ()) -> frozenset[tuple[str, str]]:
    """Return a key that runs of one configuration share, ignoring the options `without`."""
    return frozenset((name, value) for name, value in setting.items() if name not in without)


def differing(several: Iterable[Settings], but: Collection[str] = ()) -> list[str]:
    """Return the options in which configurations differ, without those that only depend on another that differs."""
    compared = list(several)
    all_names = dict.fromkeys(name for setting in compared for name in setting)
    names = [name for name in all_names if len({setting.get(name) for setting in compared}) > 1 and name not in but]
    dependent = {companion for name in names for companion in companions(name, compared)}
    sufficient = [name for name in names if name not in dependent]
    if _count_distinct(compared, sufficient) == _count_distinct(compared, names):
        return sufficient
    return names


def companions(option: str, several: Iterable[Mapping[str, Any]]) -> tuple[str, ...]:
    """Return the options, and versions, that have a meaning with some values of `option` only.

    Those of `source` come from the sources that the configurations name. A plug-in that is not installed has none, nor
    has a value that is no text: a configuration may be from a foreign `run.json`.
    """
    from perfkit_workloads.data import DataOptions

    several = list(several)
    sources = _load_sources({name for setting in several if isinstance(name := setting.get("source"), str)})
    if option == "source":
        filled = _filled_with_source(several)
        options = [name for source in sources for name in source.Config.__struct_fields__]
        packages = [f"version.{source.package}" for source in sources if source.package is not None]
        return *options, *filled, "data_dir", *packages
    tables = [DataOptions.DEPENDENT, *(source.DEPENDENT for source in sources)]
    return tuple(name for table in tables for name in table.get(option, ()))


def _filled_with_source(several: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return the arguments of a script whose value contains the source's name in every configuration (`{source}`)."""
    known = [setting for setting in several if isinstance(setting.get("script"), str)]
    names = {name for setting in known for name in setting} - {"source"}
    return sorted(
        name for name in names if all(str(setting.get("source")) in str(setting.get(name, "")) for setting in known)
    )


def is_input_option(option: str) -> bool:
    from perfkit_workloads.data import SOURCES, DataOptions

    # Options of a source begin with its name: no other plug-in is imported.
    sources = [name for name in SOURCES.names() if option.startswith(f"{name}_")]
    names = {name for source in _load_sources(sources) for name in source.Config.__struct_fields__}
    return option in names or option in {field.name for field in msgspec.structs.fields(DataOptions)}


def _load_sources(names: Iterable[str]) -> list[Any]:
    """Return the classes of sources; those that are not installed or cannot be loaded are left out."""
    from perfkit_workloads.data import SOURCES

    loaded = []
    for name in sorted(names):
        try:
            loaded += [SOURCES.load(name)] if name in SOURCES else []
        except PluginError:
            continue
    return loaded


def _count_distinct(several: Iterable[Settings], names: Collection[str]) -> int:
    return len({tuple(setting.get(name) for name in names) for setting in several})
