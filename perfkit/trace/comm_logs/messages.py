"""The messages of NCCL's log that perfkit understands. Every pattern begins with fixed text and is bounded.

The formats are those of NCCL 2.4 to 2.30 (src/init.cc, src/transport, src/enqueue.cc, src/misc/param.cc).
"""

import re
from itertools import pairwise
from typing import Final, NamedTuple

_LONGEST: Final = 64
_CONNECTION: Final = re.compile(
    r"(?:Channel|Ring) \d{1,4}(?:/\d{1,4})? : (\d{1,9})(?:\[([0-9a-f]{1,16})\])? -> (\d{1,9})(?:\[([0-9a-f]{1,16})\])?"
    r"(?: \[(send|receive)\])? {1,8}via (.{1,120})"
)
_RING: Final = re.compile(r"Channel \d{1,4}/(\d{1,4}) : ")
_TREES: Final = re.compile(r"\[\d{1,4}\] -?\d{1,9}[/-]")
_CHANNELS: Final = re.compile(r"(\d{1,5}) (coll|nvls|p2p) channels(?:,|$)")
_CHOICE: Final = re.compile(r"(?:(\w{1,40}): {1,20})?(\d{1,18}) Bytes -> Algo (\w{1,30}) proto (\w{1,30})")
_VARIABLE: Final = re.compile(r"((?:NCCL|RCCL)_[A-Z0-9_]{1,80}) set (?:by environment )?to (.{1,300})")
_ADAPTER: Final = re.compile(r"\[\d{1,4}\]([A-Za-z0-9_.-]{1,64})(?::\d{1,4}/(\w{1,16}))?")
_VERSION: Final = re.compile(r"(NCCL|RCCL|HIP|ROCm) version {1,4}:? {0,4}(\d{1,6}\.[A-Za-z0-9_.+:/-]{1,64})")
_PLUGIN: Final = re.compile(r"(?:NET/Plugin ?: Loaded net plugin|Initialized NET plugin|P2P plugin) ([\w.-]{1,64})")
_INTERNAL: Final = ("Using internal network plugin", "using internal implementation")
_ALGORITHMS: Final = ("Tree", "Ring", "CollNet", "CollNetChain", "NVLS", "NVLSTree", "PAT")
_PROTOCOLS: Final = ("LL", "LL128", "Simple")
"""In the order of the numbers that logs before NCCL 2.24 give; number 2 of algorithms was renamed CollNetDirect."""
_BY_LOWER_CASE: Final = {name.lower(): name for name in (*_ALGORITHMS, *_PROTOCOLS)}


class Connection(NamedTuple):
    """A connection between two ranks of a communicator, as one of them logged it."""

    own: int
    """Rank that logged it, in its communicator."""
    own_device: str
    """Number of its device (nvmlDev), or the device's PCI address in older versions; empty if not logged."""
    peer: int
    peer_device: str
    sends: bool
    transport: str
    """`P2P/CUMEM`, `SHM/direct`, `NET/IB`, `NET/Socket`."""
    gpu_direct: bool
    """Whether the adapter reads and writes the device's memory (GPUDirect RDMA)."""
    pointer: str = ""
    """Of the communicator in its process; only RCCL logs it."""


class Choice(NamedTuple):
    """What NCCL chose for a collective."""

    operator: str | None
    algorithm: str
    protocol: str


class Member(NamedTuple):
    """A rank of a communicator, as its initialisation is logged."""

    rank: int
    ranks: int
    pointer: str
    device: str
    """cudaDev"""
    device_names: frozenset[str]
    """What connections may call the device: its numbers and its PCI address."""
    communicator: str | None
    """Name that is the same on all ranks; None before NCCL 2.15."""
    split_of: tuple[str, str, str] | None
    """Pointer of the parent, count of splits and colour, of a split communicator."""


def parse_connection(text: str) -> Connection | None:
    """Return a connection: `Channel 00/0 : 12[4] -> 13[5] [send] via NET/IB/0/GDRDMA`."""
    match = _CONNECTION.match(text)
    if match is None:
        return None
    source, destination = (int(match[1]), match[2] or ""), (int(match[3]), match[4] or "")
    sends = match[5] != "receive"
    own, peer = (source, destination) if sends else (destination, source)
    via, _, communicator = match[6].partition(" comm 0x")
    pointer = f"0x{communicator.split(None, 1)[0]}"[:32] if communicator else ""
    parts = via.split("/")
    transport = "/".join(part.strip() for part in parts[:2])[:_LONGEST]
    return Connection(*own, *peer, sends, transport, any(part.startswith("GDRDMA") for part in parts[2:]), pointer)


def parse_member(text: str) -> Member | None:
    """Return whose communicator is initialised: `ncclCommInitRank comm 0x… rank 1 nranks 8 … - Init COMPLETE`."""
    fields = dict(pairwise(text.split(None, 64)[:64]))
    rank, ranks = fields.get("rank", ""), fields.get("nranks", fields.get("nRanks", ""))
    if "comm" not in fields or not _is_count(rank) or not _is_count(ranks):
        return None
    names = frozenset(fields[name][:16] for name in ("cudaDev", "nvmlDev", "busId") if name in fields)
    communicator, parent = fields.get("commId"), fields.get("parent")
    split = (parent[:32], fields.get("splitCount", "")[:9], fields.get("color", "")[:12]) if parent else None
    return Member(
        int(rank),
        int(ranks),
        fields["comm"][:32],
        fields.get("cudaDev", "")[:16],
        names,
        communicator[:32] if communicator else None,
        split,
    )


def parse_choice(text: str) -> tuple[Choice, int] | None:
    """Return what was chosen for how many bytes: `AllReduce: 4096 Bytes -> Algo RING proto LL channel…`."""
    match = _CHOICE.match(text)
    if match is None:
        return None
    return Choice(match[1], _named(match[3], _ALGORITHMS), _named(match[4], _PROTOCOLS)), int(match[2])


def parse_variable(text: str) -> tuple[str, str] | None:
    """Return a variable and its value, `NCCL_IB_DISABLE set by environment to 1`, without a full stop after numbers."""
    match = _VARIABLE.match(text)
    if match is None:
        return None
    value = match[2].strip()
    without_stop = value.removesuffix(".")
    return match[1], without_stop if without_stop.lstrip("-").isdecimal() else value


def parse_versions(text: str) -> list[tuple[str, str]]:
    """Return the versions that a line names: of NCCL or RCCL, of the driver, of the plug-in for the network."""
    if text.startswith("cudaDriverVersion "):
        number = text.split(None, 2)[1]
        return [("CUDA driver", f"{int(number) // 1000}.{int(number) % 1000 // 10}")] if _is_count(number) else []
    if plugin := _PLUGIN.match(text):
        return [("network plug-in", plugin[1])]
    if text.startswith("Using network "):
        return [("network", text[14 : 14 + _LONGEST])]
    if text.startswith("NET/Plugin") and any(part in text for part in _INTERNAL):
        return [("network plug-in", "internal")]
    version = _VERSION.match(text)
    return [(version[1], version[2])] if version else []


def parse_network(text: str) -> tuple[str, str] | None:
    """Return a network and its adapters: `NET/IB : Using [0]mlx5_0:1/IB [1]mlx5_1:1/IB; OOB eth0:10.0.0.1<0>`."""
    if not text.startswith("NET/"):
        return None
    name, separator, rest = text[4:1024].partition(" : Using ")
    adapters = [f"{found[1]} ({found[2]})" if found[2] else found[1] for found in _ADAPTER.finditer(rest.split(";")[0])]
    return (name[:_LONGEST], ", ".join(adapters[:32])) if separator and adapters else None


def parse_shape(text: str) -> dict[str, int]:
    """Return the numbers of rings, trees and channels that a line names, by name."""
    if ring := _RING.match(text):
        return {"rings": int(ring[1])}
    if text.startswith("Trees ["):
        return {"trees": len(_TREES.findall(text))}
    return {f"{found[2]}_channels": int(found[1]) for found in _CHANNELS.finditer(text[:200])}


def _named(word: str, names: tuple[str, ...]) -> str:
    """Return the name for a number; names as their own, without NCCL's capitals."""
    if word.isdecimal():
        return names[int(word)] if len(word) < 3 and int(word) < len(names) else word
    return _BY_LOWER_CASE.get(word.replace("_", "").lower(), word)


def _is_count(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) < 10
