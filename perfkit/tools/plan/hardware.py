"""The devices and clusters that a plan is for: the device table, and `clusters.toml` with links and power beside it."""

import tomllib
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any, Final

import msgspec
from msgspec import Struct

from perfkit.base.regular_file import read_toml
from perfkit.base.validation import plain_message
from perfkit.errors import UsageError
from perfkit.records.plan import PlannedDevice
from perfkit.records.roofline import DevicePeaks
from perfkit.storage.device_table_file import load_device_table
from perfkit.tools.plan.precision import Precision

NETWORK_GB_PER_S: Final = 25.0
"""A device's share of its host's network, of devices without a cluster: one port of 200 Gb/s for each."""

DEFAULT_PER_HOST: Final = 8
_MOST: Final = 1e15
"""Larger figures in a table are mistakes; a number in a file may have hundreds of digits."""


class DeviceLinks(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Links and power of a device of the device table."""

    name: str
    short: str = ""
    """Name for `--device`."""
    link_gb_per_s: float | None = None
    power_watts: float | None = None
    source: str = ""


class Cluster(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A cluster of equal hosts."""

    name: str
    device: str
    devices_per_host: int
    network_gb_per_s: float
    link_gb_per_s: float | None = None
    """In place of the device's."""
    host_memory_gb: float | None = None
    """Of one host."""
    nvme_gb: float | None = None
    """Of one host's own drives."""
    peak_share: float = 1.0
    """The cluster's peak as a share of the device table's."""
    source: str = ""


class ClusterTable(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The content of a table of clusters."""

    device: list[DeviceLinks] = []
    cluster: list[Cluster] = []


def find_hardware(
    precision: Precision,
    *,
    device: str | None,
    cluster: str | None,
    device_table: Path | None = None,
    cluster_table: Path | None = None,
) -> PlannedDevice | None:
    """Return the device of a plan; None if neither a device nor a cluster is named.

    Raises:
        UsageError: There is no such device or cluster, both are named and do not agree, or a table is invalid.
    """
    if device is None and cluster is None:
        return None
    table = _load(cluster_table)
    hosts = None if cluster is None else _find_cluster(table, cluster)
    rows = load_device_table(device_table)
    name = hosts.device if device is None and hosts else _device_name(device or "", table, rows)
    if hosts is not None and name != hosts.device:
        raise UsageError(f"--cluster {cluster} has {hosts.device}: remove --device {device}")
    peaks = next((row for row in rows if row.name == name), None)
    if peaks is None:
        raise UsageError(f"--cluster {cluster}: its device {name} is not in the device table: add --device-table")
    links = next((row for row in table.device if row.name == name), DeviceLinks(name=name))
    return _joined(peaks, links, hosts, precision)


def _device_name(given: str, table: ClusterTable, rows: Sequence[DevicePeaks]) -> str:
    """Return the name in the device table that a user means: torch's, a short one, or how just one of them begins.

    Raises:
        UsageError: There is none, or several begin so.
    """
    if any(row.name == given for row in rows):
        return given
    names = {row.short: row.name for row in reversed(table.device) if row.short}
    plain = _plain(given)
    found = [short for short in names if _plain(short) == plain] or [
        short for short in names if plain and _plain(short).startswith(plain)
    ]
    if len(found) == 1:
        return names[found[0]]
    if found:
        raise UsageError(f"--device {given}: there are {' and '.join(sorted(found))}: name one of them")
    if any(row.name == given.lower() for row in table.cluster):
        raise UsageError(f"--device {given}: {given} is a cluster: use --cluster {given}")
    known = ", ".join(sorted(names))
    raise UsageError(f"--device {given}: not in the device table: choose from {known}, or add it with --device-table")


def _plain(name: str) -> str:
    """Return a name without what people write differently: `A100-80GB` as `a10080g`."""
    letters = "".join(filter(str.isalnum, name.lower())).removeprefix("nvidia").removeprefix("amd")
    return letters.replace("gb", "g").replace("sxm4", "").replace("sxm", "")


def _joined(peaks: DevicePeaks, links: DeviceLinks, hosts: Cluster | None, precision: Precision) -> PlannedDevice:
    dtype = next((dtype for dtype in precision.matmul_dtypes if dtype in peaks.tflops), precision.matmul_dtypes[0])
    peak = peaks.flops_per_s(dtype)
    link = (hosts.link_gb_per_s if hosts else None) or links.link_gb_per_s
    network = hosts.network_gb_per_s if hosts else NETWORK_GB_PER_S
    found = [peaks.source, links.source, hosts.source if hosts else ""]
    return PlannedDevice(
        name=peaks.name,
        memory_bytes=None if peaks.memory_gb is None else round(peaks.memory_gb * 1e9),
        flops_per_s=None if peak is None else peak * (hosts.peak_share if hosts else 1.0),
        bandwidth_bytes_per_s=peaks.bytes_per_s,
        devices_per_host=hosts.devices_per_host if hosts else DEFAULT_PER_HOST,
        host_bytes_per_s=None if link is None else link * 1e9,
        network_bytes_per_s=network * 1e9,
        power_watts=links.power_watts,
        host_memory_bytes=_bytes(hosts.host_memory_gb) if hosts else None,
        nvme_bytes=_bytes(hosts.nvme_gb) if hosts else None,
        sources=[source for source in found if source],
    )


def _bytes(gigabytes: float | None) -> int | None:
    return None if gigabytes is None else round(gigabytes * 1e9)


def _find_cluster(table: ClusterTable, name: str) -> Cluster:
    found = next((row for row in table.cluster if row.name == name), None)
    found = found or next((row for row in table.cluster if row.name.lower() == name.lower()), None)
    if found is None:
        known = ", ".join(row.name for row in table.cluster)
        raise UsageError(f"--cluster {name}: choose from {known}, or add it with --cluster-table")
    return found


def _load(own: Path | None) -> ClusterTable:
    """Return the user's rows, which come first, and perfkit's."""
    text = files("perfkit.tools.plan").joinpath("clusters.toml").read_text("utf-8")
    builtin = _decoded(tomllib.loads(text), "clusters.toml")
    if own is None:
        return builtin
    given = _decoded(read_toml(own, "--cluster-table"), f"--cluster-table {own}")
    return ClusterTable(device=[*given.device, *builtin.device], cluster=[*given.cluster, *builtin.cluster])


def _decoded(content: dict[str, Any], where: str) -> ClusterTable:
    try:
        table = msgspec.convert(content, ClusterTable)
    except msgspec.ValidationError as error:
        raise UsageError(f"{where}: {plain_message(str(error))}") from error
    rows: tuple[DeviceLinks | Cluster, ...] = (*table.device, *table.cluster)
    for row in rows:
        for name, value in msgspec.structs.asdict(row).items():
            if isinstance(value, int | float) and not 0 < value < _MOST:
                raise UsageError(f"{where}: {row.name}: {name} is not a positive number: {value!r}")
    return table
