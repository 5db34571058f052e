"""Finds what NCCL's logs show to be slow, switched off or wrong (metrics.md section 25)."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from perfkit.analysis.per_run.comm_logs.links import Link, Ranks
from perfkit.analysis.per_run.comm_logs.summarize import place_of
from perfkit.schema.common import Finding
from perfkit.trace.comm_logs.facts import Device, NcclFacts, Process

_SOCKET: Final = "NET/Socket"
_MOST_NAMED: Final = 4
"""Pairs, versions or hosts that a sentence names."""
_DISABLED: Final = {
    "NCCL_IB_DISABLE": "NCCL does not use InfiniBand or RoCE",
    "NCCL_P2P_DISABLE": "devices of one host do not access each other's memory",
    "NCCL_SHM_DISABLE": "devices of one host do not exchange data in shared memory",
}
Pair = frozenset[Device]


class _Pairs(NamedTuple):
    """Pairs of devices, and the transports that they use."""

    within: dict[Pair, set[str]]
    between: dict[Pair, set[str]]


def find_log_findings(facts: NcclFacts, links: Sequence[Link], ranks: Ranks) -> Iterator[Finding]:
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
        message = f"a collective did not end in time, by torch's watchdog: {facts.first_timeout}"
        yield Finding(code="nccl_timeout", severity="error", message=message)


def _sockets(links: Sequence[Link], between: dict[Pair, set[str]], facts: NcclFacts, ranks: Ranks) -> Iterator[Finding]:
    """Yield a finding if pairs on different hosts use sockets: some of them, or all."""
    network = {pair: used for pair, every in between.items() if (used := {x for x in every if x.startswith("NET/")})}
    slow = [pair for pair, used in network.items() if _SOCKET in used]
    if not slow:
        return
    over_sockets = f"{_named(slow, ranks, with_hosts=True)} on different hosts exchange data over sockets ({_SOCKET})"
    others = sorted({x for pair, used in network.items() if _SOCKET not in used for x in used})
    unknown = {link.logged.connection.transport for link in links if link.devices is None}
    others_unknown = sorted(x for x in unknown if x.startswith("NET/") and x != _SOCKET)
    if others:
        rest = _count(len(network) - len(slow), "pair")
        yield Finding(
            code="nccl_some_sockets",
            severity="warning",
            message=f"{over_sockets}, the other {rest} over {', '.join(others)}",
        )
    elif others_unknown:
        rest = f"connections whose ends are unknown use {', '.join(others_unknown)}"
        yield Finding(code="nccl_some_sockets", severity="warning", message=f"{over_sockets}, while {rest}")
    else:
        message = f"{over_sockets}: all that the logs show{_why_sockets(facts)}"
        yield Finding(code="nccl_only_sockets", severity="warning", message=message)


def _why_sockets(facts: NcclFacts) -> str:
    if _processes_with(facts, "NCCL_IB_DISABLE"):
        return "; NCCL_IB_DISABLE is set"
    return "; NCCL found no InfiniBand device" if facts.without_infiniband else ""


def _shared_memory(within: dict[Pair, set[str]], ranks: Ranks) -> Iterator[Finding]:
    """Yield a finding per host on which some pairs use P2P, and others only shared memory."""
    by_host: dict[str, list[Pair]] = defaultdict(list)
    for pair in within:
        by_host[min(pair).process.host].append(pair)
    for host, pairs in sorted(by_host.items()):
        direct = [pair for pair in pairs if any(used.startswith("P2P/") for used in within[pair])]
        shared = [pair for pair in pairs if within[pair] and all(used.startswith("SHM") for used in within[pair])]
        if direct and shared:
            message = (
                f"on {host}, {_named(shared, ranks)} exchange data in the host's shared memory (SHM), other "
                f"{_count(len(direct), 'pair')} directly between devices (P2P)"
            )
            yield Finding(code="nccl_shared_memory", severity="info", message=message)


def _switched_off(facts: NcclFacts) -> Iterator[Finding]:
    hosts = {process.host for process in facts.processes}
    for name, meaning in _DISABLED.items():
        value, processes = next(iter(_processes_with(facts, name)), ("", None))
        if processes is None:
            continue
        has_no_effect = name == "NCCL_IB_DISABLE" and len(hosts) == 1
        known = processes - {None}
        whose = f" in {len(known)} of {_count(len(facts.processes), 'process', 'processes')}" if known else ""
        message = f"{name} is set to {value}{whose}: {meaning}"
        message += "; the logs are of one host, so it may not matter" if has_no_effect else ""
        yield Finding(code="nccl_disabled", severity="info" if has_no_effect else "warning", message=message)


def _processes_with(facts: NcclFacts, name: str) -> list[tuple[str, set[Process | None]]]:
    """Return the values other than 0 of a variable, and the processes with them."""
    return [
        (value, processes)
        for (variable, value), processes in sorted(facts.variables.items())
        if variable == name and value.lstrip("-").isdecimal() and value.strip("-0")
    ]


def _versions(facts: NcclFacts) -> Iterator[Finding]:
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
            named = [
                f"{version} (rank {ranks[0]}{' and others' if len(ranks) > 1 else ''})"
                for version, ranks in sorted(by_version.items())[:_MOST_NAMED]
            ]
            message = f"ranks of one communicator use different versions: {', '.join(named)}"
            yield Finding(code="nccl_versions_differ", severity="warning", message=message)
            return


def _warnings(facts: NcclFacts, ranks: Ranks) -> Iterator[Finding]:
    if not facts.warning_count:
        return
    first, process = next(iter(facts.first_warned.items()))
    rank = ranks.of_process(process)
    who = f" by rank {rank}" if rank is not None else ""
    order = "the first in the logs" if facts.warning_count > 1 else "it was logged"
    message = f"NCCL logged {_count(facts.warning_count, 'warning')}; {order}{who}: {first.text}"
    yield Finding(code="nccl_warnings", severity="warning", message=message, rank=rank)


def _named(pairs: Iterable[Pair], ranks: Ranks, with_hosts: bool = False) -> str:
    """Return pairs in words: `ranks 12 and 13`, `2 pairs of ranks (0 and 8, 1 and 9)`."""
    in_order = sorted(sorted((_order(device, ranks), device) for device in pair) for pair in pairs)
    words = [" and ".join(_name(device, ranks, with_hosts) for _, device in pair) for pair in in_order[:_MOST_NAMED]]
    if len(in_order) == 1:
        return f"ranks {words[0]}"
    return f"{len(in_order)} pairs of ranks ({', '.join(words)}{', …' if len(in_order) > _MOST_NAMED else ''})"


def _order(device: Device, ranks: Ranks) -> tuple[bool, int]:
    rank = ranks.of(device)
    return rank is None, rank or 0


def _name(device: Device, ranks: Ranks, with_host: bool) -> str:
    rank = ranks.of(device)
    if rank is None:
        return f"process {device.process.id} of {device.process.host}"
    return f"{rank} ({device.process.host})" if with_host else str(rank)


def _count(number: int, one: str, several: str = "") -> str:
    return f"{number:,} {one if number == 1 else several or f'{one}s'}"
