"""Finds what NCCL's logs show to be slow, switched off or wrong (metrics.md section 25)."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from perfkit.records.common import Observation, Severity
from perfkit.subjects.comm_logs.summarize import Link, Ranks, place_of
from perfkit.trace.comm_logs.facts import Device, NcclFacts, Process

_SOCKET: Final = "NET/Socket"
_DISABLED: Final = ("NCCL_IB_DISABLE", "NCCL_P2P_DISABLE", "NCCL_SHM_DISABLE")
Pair = frozenset[Device]


class _Pairs(NamedTuple):
    """Pairs of devices, and the transports that they use."""

    within: dict[Pair, set[str]]
    between: dict[Pair, set[str]]


def find_log_findings(facts: NcclFacts, links: Sequence[Link], ranks: Ranks) -> Iterator[Observation]:
    """Yield findings about what logs contain. `links` are the connections of `facts`."""
    pairs = _Pairs(defaultdict(set), defaultdict(set))
    for link in links:
        if (devices := link.devices) is not None:
            of_place = pairs.within if place_of(link) == "within hosts" else pairs.between
            of_place[devices].add(link.logged.connection.transport)
    yield from _sockets(links, pairs.between, facts, ranks)
    yield from _shared_memory(pairs.within, ranks)
    yield from _switched_off(facts)
    yield from _versions(facts)
    yield from _warnings(facts, ranks)
    if facts.timeouts:
        yield Observation("nccl_timeout", {"first": facts.first_timeout})


def _sockets(
    links: Sequence[Link], between: dict[Pair, set[str]], facts: NcclFacts, ranks: Ranks
) -> Iterator[Observation]:
    """Yield a finding if pairs on different hosts use sockets: some of them, or all."""
    network = {pair: used for pair, every in between.items() if (used := {x for x in every if x.startswith("NET/")})}
    slow = [pair for pair, used in network.items() if _SOCKET in used]
    if not slow:
        return
    found = {"slow": _ends(slow, ranks)}
    others = sorted({x for pair, used in network.items() if _SOCKET not in used for x in used})
    unknown = {link.logged.connection.transport for link in links if link.devices is None}
    others_unknown = sorted(x for x in unknown if x.startswith("NET/") and x != _SOCKET)
    if others:
        yield Observation("nccl_some_sockets", {**found, "others": len(network) - len(slow), "transports": others})
    elif others_unknown:
        yield Observation("nccl_some_sockets", {**found, "transports": others_unknown}, "unknown_ends")
    else:
        yield Observation("nccl_only_sockets", {**found, "why": _why_sockets(facts)})


def _why_sockets(facts: NcclFacts) -> str:
    if _processes_with(facts, "NCCL_IB_DISABLE"):
        return "disabled"
    return "no_infiniband" if facts.without_infiniband else ""


def _shared_memory(within: dict[Pair, set[str]], ranks: Ranks) -> Iterator[Observation]:
    """Yield a finding per host on which some pairs use P2P, and others only shared memory."""
    by_host: dict[str, list[Pair]] = defaultdict(list)
    for pair in within:
        by_host[min(pair).process.host].append(pair)
    for host, pairs in sorted(by_host.items()):
        direct = [pair for pair in pairs if any(used.startswith("P2P/") for used in within[pair])]
        shared = [pair for pair in pairs if within[pair] and all(used.startswith("SHM") for used in within[pair])]
        if direct and shared:
            yield Observation(
                "nccl_shared_memory", {"host": host, "shared": _ends(shared, ranks), "direct": len(direct)}
            )


def _switched_off(facts: NcclFacts) -> Iterator[Observation]:
    hosts = {process.host for process in facts.processes}
    for name in _DISABLED:
        value, processes = next(iter(_processes_with(facts, name)), ("", None))
        if processes is None:
            continue
        has_no_effect = name == "NCCL_IB_DISABLE" and len(hosts) == 1
        counts = {"known": len(processes - {None}), "processes": len(facts.processes), "one_host": has_no_effect}
        severity: Severity = "info" if has_no_effect else "warning"
        yield Observation("nccl_disabled", {"name": name, "value": value, **counts}, severity=severity)


def _processes_with(facts: NcclFacts, name: str) -> list[tuple[str, set[Process | None]]]:
    """Return the values other than 0 of a variable, and the processes with them."""
    return [
        (value, processes)
        for (variable, value), processes in sorted(facts.variables.items())
        if variable == name and value.lstrip("-").isdecimal() and value.strip("-0")
    ]


def _versions(facts: NcclFacts) -> Iterator[Observation]:
    """Yield a finding if processes of one communicator have different versions of NCCL."""
    version_of: dict[Process, set[str]] = defaultdict(set)
    for (name, value), processes in facts.versions.items():
        for process in processes:
            if name in ("NCCL", "RCCL") and process is not None:
                version_of[process].add(f"{name} {value}")
    for communicator in facts.communicators.values():
        by_version: dict[str, list[int]] = defaultdict(list)
        for rank, device in sorted(communicator.members.items()):
            if len(version_of.get(device.process, ())) == 1:
                by_version[next(iter(version_of[device.process]))].append(rank)
        if len(by_version) > 1 and not communicator.is_ambiguous:
            yield Observation("nccl_versions_differ", {"versions": sorted(by_version.items())})
            return


def _warnings(facts: NcclFacts, ranks: Ranks) -> Iterator[Observation]:
    if not facts.warning_count:
        return
    first, process = next(iter(facts.first_warned.items()))
    rank = ranks.of_process(process)
    yield Observation("nccl_warnings", {"count": facts.warning_count, "first": first.text, "rank": rank}, rank=rank)


def _ends(pairs: Iterable[Pair], ranks: Ranks) -> list[list[tuple[int | None, int, str]]]:
    """Return rank, process and host of both ends of each pair, those of known ranks first."""
    in_order = sorted(sorted((_order(device, ranks), device) for device in pair) for pair in pairs)
    return [[(ranks.of(end), end.process.id, end.process.host) for _, end in pair] for pair in in_order]


def _order(device: Device, ranks: Ranks) -> tuple[bool, int]:
    rank = ranks.of(device)
    return rank is None, rank or 0
