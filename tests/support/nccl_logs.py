"""NCCL logs, hand-written by the formats in NCCL's source, which did not run. Versions 2.21 and 2.7, and RCCL 2.21."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import pairwise

COMM_ID = "0x49bbd7790311d5eb"


@dataclass
class MadeLog:
    """The log of ranks in a ring, with one process per rank."""

    hosts: tuple[str, ...] = ("node1", "node2")
    """One per rank: `("a", "a", "b", "b")`."""
    comm_id: str | None = COMM_ID
    version: str = "2.21.5+cuda12.4"
    versions: dict[int, str] = field(default_factory=dict)
    """Of ranks with another one."""
    transports: dict[frozenset[int], str] = field(default_factory=dict)
    """Of pairs with another transport than P2P within a host and InfiniBand between hosts."""
    variables: tuple[str, ...] = ()
    channels: int = 2

    def head(self, rank: int, thread: int = 0) -> str:
        """Return what NCCL writes before its message."""
        return f"{self.hosts[rank]}:{1000 + rank}:{thread or 5000 + rank} [{self.device(rank)}]"

    def device(self, rank: int) -> int:
        """Return the number of a rank's device on its host."""
        return self.hosts[:rank].count(self.hosts[rank])

    def info(self, rank: int, text: str) -> str:
        """Return a line."""
        return f"{self.head(rank)} NCCL INFO {text}"

    def warn(self, rank: int, text: str, source: str = "misc/socket.cc:483") -> str:
        """Return a warning."""
        return f"{self.head(rank)} {source} NCCL WARN {text}"

    def init(self, rank: int, end: str) -> str:
        """Return a line about the communicator."""
        device = self.device(rank)
        name = "" if self.comm_id is None else f" commId {self.comm_id}"
        text = f"comm 0x55{rank:04x} rank {rank} nranks {len(self.hosts)} cudaDev {device} nvmlDev {device}"
        return self.info(rank, f"ncclCommInitRank {text} busId {device + 1}7000{name} - Init {end}")

    def connections(self, rank: int) -> list[str]:
        """Return the lines of connections to the next rank of the ring, and from the previous one."""
        size = len(self.hosts)
        after, before = (rank + 1) % size, (rank - 1) % size
        lines = []
        for channel in range(self.channels):
            for source, destination, word in ((before, rank, "[receive] "), (rank, after, "[send] ")):
                via = self.transport(source, destination)
                if not via.startswith("NET/"):
                    if source != rank:
                        continue
                    word = ""
                ends = f"{source}[{self.device(source)}] -> {destination}[{self.device(destination)}]"
                lines.append(self.info(rank, f"Channel {channel:02}/0 : {ends} {word}via {via}"))
        return lines

    def transport(self, source: int, destination: int) -> str:
        """Return what is logged after `via`."""
        same = self.hosts[source] == self.hosts[destination]
        return self.transports.get(frozenset((source, destination)), "P2P/CUMEM" if same else "NET/IB/0/GDRDMA")

    def rank(self, rank: int, between: Iterable[str] = ()) -> list[str]:
        """Return all lines of a rank, with others before the end of its initialisation."""
        shape = (
            f"{self.channels} coll channels, 0 collnet channels, 0 nvls channels, 8 p2p channels, 8 p2p channels per"
        )
        ring = " ".join(f"{one:3}" for one in range(len(self.hosts)))
        return [
            self.info(rank, "cudaDriverVersion 12020"),
            self.info(rank, f"NCCL version {self.versions.get(rank, self.version)}"),
            *(self.info(rank, variable) for variable in self.variables),
            self.info(rank, "NET/IB : Using [0]mlx5_0:1/IB [1]mlx5_1:1/RoCE [RO]; OOB eth0:10.0.0.1<0>"),
            self.info(rank, "Using network IB"),
            *([self.init(rank, "START")] if self.comm_id else []),
            *(self.info(rank, f"Channel {one:02}/{self.channels:02} : {ring}") for one in range(self.channels)),
            self.info(rank, "Trees " + " ".join(f"[{one}] 1/-1/-1->{rank}->-1" for one in range(self.channels))),
            *self.connections(rank),
            *between,
            self.info(rank, "Connected all rings"),
            self.info(rank, f"{shape} peer"),
            self.init(rank, "COMPLETE"),
        ]

    def text(self) -> str:
        """Return the log of all ranks, line by line in turns, as on the terminal of a job."""
        turns = zip(*(self.rank(rank) for rank in range(len(self.hosts))), strict=False)
        longest = [self.rank(rank) for rank in range(len(self.hosts))]
        done = min(map(len, longest))
        rest = [line for lines in longest for line in lines[done:]]
        return "\n".join([line for turn in turns for line in turn] + rest) + "\n"


def ring_pairs(size: int) -> list[frozenset[int]]:
    """Return the neighbours in a ring of ranks."""
    return [frozenset(pair) for pair in {*pairwise(range(size)), (0, size - 1)}]
