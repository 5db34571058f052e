"""What tells one configuration from another."""

from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final

from perfkit.schema.config_identity import performance_options
from perfkit.schema.run import RunReport

_UNTOUCHED: Final = frozenset({"steps", "epochs", "peak_tflops", "batch_size"})
"""Options that do not touch how long a warm step takes either; the batch is compared by itself."""

_OF_SOURCES: Final = ("hdf5_chunk", "hdf5_compression", "data_dir", "version.h5py", "version.safetensors")
COMPANIONS: Final[Mapping[str, tuple[str, ...]]] = {
    "source": _OF_SOURCES,
    "num_workers": ("prefetch", "worker_start"),
    "hdf5_compression": ("hdf5_chunk",),
}
"""What an option brings with it: it means something with some values of the option only."""

Settings = dict[str, str]
"""Every option of a run that touches its steps, as text."""


def settings(run: RunReport) -> Settings | None:
    """Return what tells the configuration of `run` from others, but for ranks and batch; None without a manifest."""
    if run.config is None:
        return None
    found = {name: shown(value) for name, value in performance_options(run).items() if name not in _UNTOUCHED}
    if run.source is not None:
        found["source"] = run.source
    devices = sorted({host.device_name for host in run.hosts})
    return (
        {"workload": run.workload or ""}
        | found
        | {f"version.{name}": version for name, version in run.versions.items()}
        | ({"device_name": ", ".join(devices)} if devices else {})
        | ({"commit": run.commit[:12]} if run.commit else {})
    )


def shown(value: Any) -> str:
    """Return an option's value as it is written: `on`, `none`, `2`, `a, b`."""
    if isinstance(value, bool):
        return "on" if value else "off"
    if value is None:
        return "none"
    return ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


def key(setting: Settings, without: Collection[str] = ()) -> frozenset[tuple[str, str]]:
    """Return what is the same for runs of one configuration, but for some options."""
    return frozenset((name, value) for name, value in setting.items() if name not in without)


def differing(several: Iterable[Settings], but: Collection[str] = ()) -> list[str]:
    """Return the options in which configurations differ, without those that only come with another that differs."""
    known = list(several)
    names = [name for name in _names(known) if len({setting.get(name) for setting in known}) > 1 and name not in but]
    brought = {companion for name in names for companion in COMPANIONS.get(name, ())}
    telling = [name for name in names if name not in brought]
    distinct = {tuple(setting.get(name) for name in telling) for setting in known}
    return telling if len(distinct) == len({tuple(setting.get(name) for name in names) for setting in known}) else names


def _names(several: Iterable[Settings]) -> list[str]:
    return list(dict.fromkeys(name for setting in several for name in setting))
