"""Makes the record of a run's NCCL logs."""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence, Set
from typing import Final

from perfkit.records.per_run.comm_logs import (
    LoggedCount,
    NcclChannels,
    NcclChoice,
    NcclHost,
    NcclLogs,
    NcclTransport,
    NcclWarning,
    Place,
)
from perfkit.subjects.comm_logs.links import Link, Ranks
from perfkit.trace.comm_logs.facts import NcclFacts

_Direction = tuple[object, object, bool]
_MOST_FILES: Final = 100
MOST_ROWS: Final = 100
"""Of each table."""


def summarize_logs(facts: NcclFacts, links: Sequence[Link], ranks: Ranks, files: Sequence[str]) -> NcclLogs:
    """Return the contents of logs. `links` are the connections of `facts`, and `files` the names of the logs."""
    return NcclLogs(
        files=list(files[:_MOST_FILES]),
        file_count=len(files),
        lines=facts.lines,
        garbled_lines=facts.garbled,
        left_out=facts.left_out,
        processes=len(facts.processes),
        ranks=ranks.world.ranks if ranks.world else None,
        hosts=_hosts(ranks),
        versions=count_logged(facts.versions, MOST_ROWS),
        variables=count_logged(facts.variables, MOST_ROWS),
        networks=count_logged(facts.networks, MOST_ROWS),
        channels=_channels(facts),
        transports=_transports(links),
        choices=_choices(facts),
        warnings=_warnings(facts, ranks),
        warning_count=facts.warning_count,
        timeouts=facts.timeouts,
        aborts=facts.aborts,
    )


def place_of(link: Link) -> Place:
    """Return where the ends of a connection are."""
    if link.own is None or link.peer is None:
        return "unknown"
    return "within hosts" if link.own.process.host == link.peer.process.host else "between hosts"


def _hosts(ranks: Ranks) -> list[NcclHost]:
    by_host: dict[str, list[int]] = defaultdict(list)
    for rank, device in sorted(ranks.world.members.items()) if ranks.world else ():
        by_host[device.process.host].append(rank)
    return [NcclHost(host=host, ranks=found) for host, found in by_host.items()]


def _channels(facts: NcclFacts) -> list[NcclChannels]:
    names = ("rings", "trees", "coll_channels", "nvls_channels", "p2p_channels")
    alike = Counter((one.ranks, *(one.shape[name] for name in names)) for one in facts.communicators.values())
    return [
        NcclChannels(
            ranks=ranks,
            communicators=count,
            rings=rings,
            trees=trees,
            collective_channels=collective,
            nvls_channels=nvls,
            p2p_channels=p2p,
        )
        for (ranks, rings, trees, collective, nvls, p2p), count in sorted(alike.items(), reverse=True)[:MOST_ROWS]
    ]


def _transports(links: Sequence[Link]) -> list[NcclTransport]:
    pairs: dict[tuple[str, Place], set[object]] = defaultdict(set)
    channels: dict[tuple[str, Place], Counter[_Direction]] = defaultdict(Counter)
    gpu_direct: dict[tuple[str, Place], Counter[_Direction]] = defaultdict(Counter)
    for link in links:
        row = (link.logged.connection.transport, place_of(link))
        direction = _direction(link)
        pairs[row].add(frozenset(direction[:2]))
        channels[row][direction] += link.channels
        gpu_direct[row][direction] += link.channels * link.logged.connection.gpu_direct
    return [
        NcclTransport(
            transport=transport,
            place=place,
            pairs=len(found),
            connections=_connections(channels[transport, place]),
            gpu_direct=_connections(gpu_direct[transport, place]),
        )
        for (transport, place), found in sorted(pairs.items())
    ][:MOST_ROWS]


def _direction(link: Link) -> _Direction:
    """Return source, destination, and whether the source logged the connection."""
    logged = link.logged
    process = logged.communicator or logged.process
    own, peer = link.own, link.peer
    ends: tuple[object, object] = (own, peer)
    if own is None or peer is None:
        ends = ((process, logged.connection.own), (process, logged.connection.peer))
    return (*ends, True) if logged.connection.sends else (*ends[::-1], False)


def _connections(channels: Counter[_Direction]) -> int:
    """Return the number of connections: both ends of a network connection log it, only the source of others."""
    return sum(
        max(number, channels[source, destination, not by_source]) if by_source else number
        for (source, destination, by_source), number in channels.items()
        if by_source or (source, destination, True) not in channels
    )


def _choices(facts: NcclFacts) -> list[NcclChoice]:
    rows = [
        NcclChoice(
            operator=choice.operator,
            algorithm=choice.algorithm,
            protocol=choice.protocol,
            count=sizes.count,
            least_bytes=sizes.least,
            most_bytes=sizes.most,
        )
        for choice, sizes in facts.choices.items()
    ]
    return sorted(rows, key=lambda row: (row.operator or "", row.most_bytes, row.algorithm, row.protocol))[:MOST_ROWS]


def _warnings(facts: NcclFacts, ranks: Ranks) -> list[NcclWarning]:
    return [
        NcclWarning(
            text=warned.text,
            source=warned.source,
            count=count,
            rank=ranks.of_process(facts.first_warned.get(warned)),
        )
        for warned, count in facts.warnings.most_common(MOST_ROWS)
    ]


def count_logged(noted: Mapping[tuple[str, str], Set[object]], most: int) -> list[LoggedCount]:
    """Return a row for each name and value, by name, what most processes logged first.

    Args:
        noted: processes by name and value; None among them stands for those that are not known.
        most: number of rows at most.
    """
    rows = [
        LoggedCount(name=name, value=value, processes=len(processes - {None}))
        for (name, value), processes in noted.items()
    ]
    return sorted(rows, key=lambda row: (row.name, -row.processes, row.value))[:most]
