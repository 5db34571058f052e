"""Makes the record of a run's NCCL logs."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from typing import Final, NamedTuple

from perfkit.records.common import Observation
from perfkit.records.per_run.comm_logs import (
    LoggedCount,
    NcclChannels,
    NcclChoice,
    NcclHost,
    NcclLogs,
    NcclTransport,
    NcclWarning,
    OneCclLogs,
    OneCclMessage,
    Place,
)
from perfkit.trace.comm_logs.facts import Communicator, Device, LoggedConnection, NcclFacts, Process
from perfkit.trace.comm_logs.one_ccl import OneCclFacts


class Link(NamedTuple):
    """A connection, from the end that logged it."""

    own: Device | None
    peer: Device | None
    logged: LoggedConnection
    channels: int

    @property
    def devices(self) -> frozenset[Device] | None:
        """The pair of devices; None if an end is unknown."""
        return frozenset((self.own, self.peer)) if self.own and self.peer else None


class Ranks:
    """The ranks of devices in the largest communicator."""

    def __init__(self, facts: NcclFacts) -> None:
        usable = [one for one in facts.communicators.values() if not one.is_ambiguous]
        self.world = max(usable, key=lambda one: one.ranks, default=None)
        self._of_process: dict[Process, list[int]] = defaultdict(list)
        for rank, device in sorted(self.world.members.items()) if self.world else ():
            self._of_process[device.process].append(rank)

    def of(self, device: Device) -> int | None:
        """Return a device's rank."""
        return self.world.rank_of.get(device) if self.world else None

    def of_process(self, process: Process | None) -> int | None:
        """Return a process's first rank."""
        ranks = self._of_process.get(process) if process else None
        return ranks[0] if ranks else None


def find_links(facts: NcclFacts) -> Iterator[Link]:
    """Yield all connections, with their ends as far as these are known."""
    of_process: dict[Process, list[Communicator]] = defaultdict(list)
    for communicator in facts.communicators.values():
        for process in {device.process for device in communicator.members.values()}:
            of_process[process].append(communicator)
    for logged, channels in facts.connections.items():
        candidates = _candidates(logged, facts, of_process)
        yield Link(_one(logged.connection.own, candidates), _one(logged.connection.peer, candidates), logged, channels)


def _candidates(
    logged: LoggedConnection, facts: NcclFacts, of_process: Mapping[Process, Sequence[Communicator]]
) -> list[Communicator]:
    if logged.process is None:
        return []
    named = facts.pointers.get((logged.process, logged.connection.pointer)) if logged.connection.pointer else None
    certain = facts.communicators.get(logged.communicator or named or ())
    possible = of_process.get(logged.process, ()) if certain is None else (certain,)
    return [one for one in possible if _fits(logged, one)]


def _fits(logged: LoggedConnection, communicator: Communicator) -> bool:
    connection = logged.connection
    own = communicator.members.get(connection.own)
    if own is None or own.process != logged.process or connection.peer >= communicator.ranks:
        return False
    ends = ((connection.own, connection.own_device), (connection.peer, connection.peer_device))
    return all(not name or name in communicator.device_names.get(rank, {name}) for rank, name in ends)


def _one(rank: int, communicators: Iterable[Communicator]) -> Device | None:
    """Return the device of a rank, if all communicators agree on it."""
    found = {None if one.is_ambiguous else one.members.get(rank) for one in communicators}
    return found.pop() if len(found) == 1 else None


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
    logged = ("rings", "trees", "coll_channels", "nvls_channels", "p2p_channels")
    same = Counter((one.ranks, *(one.shape[name] for name in logged)) for one in facts.communicators.values())
    names = ("ranks", "rings", "trees", "collective_channels", "nvls_channels", "p2p_channels")
    rows = sorted(same.items(), reverse=True)[:MOST_ROWS]
    return [NcclChannels(communicators=count, **dict(zip(names, shape, strict=True))) for shape, count in rows]


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


# ---- oneCCL ----------------------------------------------------------------------------------------------------------


_ONE_CCL_FILES: Final = 5
_SOCKET_PROVIDERS: Final = ("tcp", "sockets", "udp")
_PCIE: Final = "topology recognition shows PCIe connection"


def summarize_one_ccl(facts: OneCclFacts, files: Sequence[str]) -> OneCclLogs:
    """Return what logs contain; `files` are those with lines of oneCCL's."""
    return OneCclLogs(
        files=list(files[:_ONE_CCL_FILES]),
        file_count=len(files),
        lines=facts.lines,
        garbled_lines=facts.garbled,
        left_out=facts.left_out,
        processes=len(facts.processes),
        versions=count_logged(facts.versions, MOST_ROWS),
        providers=count_logged(facts.providers, MOST_ROWS),
        variables=count_logged(facts.variables, MOST_ROWS),
        warnings=_one_ccl_messages(facts.warnings),
        warning_count=facts.warning_count,
        errors=_one_ccl_messages(facts.errors),
        error_count=facts.error_count,
    )


def _one_ccl_messages(counts: Counter[str]) -> list[OneCclMessage]:
    return [OneCclMessage(text=text, count=count) for text, count in counts.most_common(MOST_ROWS)]


def find_one_ccl_findings(logs: OneCclLogs, hosts: int) -> Iterator[Observation]:
    """Yield findings about what logs contain.

    Args:
        logs: what they contain.
        hosts: of the run: within one host the provider hardly matters.
    """
    slow = [row for row in logs.providers if row.name == "provider" and _is_sockets(row.value)]
    others = [row for row in logs.providers if row.name == "provider" and not _is_sockets(row.value)]
    if slow and hosts > 1:
        values = {"providers": [row.value for row in slow], "others": [row.value for row in others]}
        yield Observation("one_ccl_sockets", values)
    if pcie := next((row for row in logs.warnings if row.text.startswith(_PCIE)), None):
        yield Observation("one_ccl_pcie", {"text": pcie.text})
    others_count = logs.warning_count - (pcie.count if pcie else 0)
    if others_count:
        first = next(row for row in logs.warnings if row is not pcie)
        yield Observation("one_ccl_warnings", {"count": others_count, "first": first.text})
    if logs.errors:
        yield Observation("one_ccl_errors", {"count": logs.error_count, "first": logs.errors[0].text})


def _is_sockets(provider: str) -> bool:
    """Return whether a provider of libfabric, such as `tcp;ofi_rxm`, sends over sockets."""
    return provider.partition(";")[0].strip() in _SOCKET_PROVIDERS
