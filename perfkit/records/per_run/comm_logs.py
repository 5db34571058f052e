"""What the logs of NCCL and of oneCCL contain about a run (metrics.md section 25)."""

from typing import Literal

from msgspec import Struct


class LoggedCount(Struct, frozen=True, kw_only=True):
    """A name and a value that processes logged: a version, a variable, a network with its adapters, or its provider."""

    name: str
    value: str
    processes: int
    """0 if the log does not name them."""


Place = Literal["within hosts", "between hosts", "unknown"]
"""Where the ends of a connection are; unknown if the log of one of them is not there."""


class NcclHost(Struct, frozen=True, kw_only=True):
    """The ranks that a host has."""

    host: str
    ranks: list[int]
    """In the largest communicator; ascending."""


class NcclTransport(Struct, frozen=True, kw_only=True):
    """Pairs of ranks that exchange data over one transport."""

    transport: str
    """As NCCL names it, without the number of the adapter: `P2P/CUMEM`, `SHM/direct`, `NET/IB`, `NET/Socket`."""
    place: Place
    pairs: int
    """Pairs of devices; with an unknown end, pairs of ranks as each process logged them."""
    connections: int
    """Channels in both directions."""
    gpu_direct: int
    """Of the connections, those in which the adapter reads and writes the device's memory."""


class NcclChannels(Struct, frozen=True, kw_only=True):
    """Communicators of one size, with equally many rings, trees and channels; 0: not logged."""

    ranks: int
    communicators: int
    rings: int
    trees: int
    collective_channels: int
    nvls_channels: int
    p2p_channels: int


class NcclChoice(Struct, frozen=True, kw_only=True):
    """How often NCCL chose an algorithm and a protocol, as rank 0 of each communicator logs it."""

    operator: str | None
    """None before NCCL 2.19, which did not log it."""
    algorithm: str
    protocol: str
    count: int
    least_bytes: int
    most_bytes: int


class NcclWarning(Struct, frozen=True, kw_only=True):
    """A warning, which may be an error: NCCL does not tell them apart."""

    text: str
    source: str
    """Place in NCCL's source."""
    count: int
    rank: int | None
    """Of the first process in the logs with it, in the largest communicator."""


class NcclLogs(Struct, frozen=True, kw_only=True):
    """The logs of a run."""

    files: list[str]
    """Names, of the first files."""
    file_count: int
    lines: int
    """Lines that NCCL wrote."""
    garbled_lines: int
    """Of them, those into which two processes wrote; these were skipped."""
    left_out: int
    """Facts beyond the limits of what is kept."""
    processes: int
    ranks: int | None
    """Size of the largest communicator; None if no initialisation was logged."""
    hosts: list[NcclHost]
    versions: list[LoggedCount]
    """Also the network, and the plug-in for it."""
    variables: list[LoggedCount]
    networks: list[LoggedCount]
    """Adapters by network."""
    channels: list[NcclChannels]
    transports: list[NcclTransport]
    choices: list[NcclChoice]
    warnings: list[NcclWarning]
    """The most frequent."""
    warning_count: int
    timeouts: int
    """Lines with which torch's watchdog reports that a collective did not end in time; it repeats them."""
    aborts: int
    """Aborts of communicators, over ranks; some versions of torch also abort them at a normal end."""


class OneCclMessage(Struct, frozen=True, kw_only=True):
    """A warning or an error."""

    text: str
    count: int


class OneCclLogs(Struct, frozen=True, kw_only=True):
    """What oneCCL logged."""

    files: list[str]
    """The first five that contain lines of oneCCL's."""
    file_count: int
    lines: int
    garbled_lines: int
    """Into which two processes wrote at once: skipped."""
    left_out: int
    """Facts beyond the limits."""
    processes: int
    versions: list[LoggedCount]
    providers: list[LoggedCount]
    """Providers of libfabric, and the network interfaces that they use."""
    variables: list[LoggedCount]
    """`CCL_…` that are not at their defaults, with these."""
    warnings: list[OneCclMessage]
    """The most frequent first; without those about variables."""
    warning_count: int
    errors: list[OneCclMessage]
    error_count: int
