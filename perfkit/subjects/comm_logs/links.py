"""Finds which devices a logged connection joins.

Connections name ranks of a communicator. RCCL names it too; else it is certain while a thread initialises one. Later
connections may be of any communicator of the process in which the ranks and devices fit: if these lead to different
devices, the other end is unknown.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from perfkit.trace.comm_logs.facts import Communicator, Device, LoggedConnection, NcclFacts, Process


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
