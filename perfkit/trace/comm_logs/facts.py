"""Collects what NCCL's logs contain, in memory that does not grow with their length, whatever else a file contains.

The format is that of NCCL's src/debug.cc, which RCCL shares: `host:pid:tid [device] NCCL INFO text`, and
`host:pid:tid [device] file.cc:123 NCCL WARN text`. A launcher or a timestamp may have put something before it.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from hashlib import blake2b
from io import BufferedReader
from pathlib import Path
from typing import Final, Literal, NamedTuple, TypeVar

from perfkit.base.regular_file import open_regular
from perfkit.errors import TraceError
from perfkit.trace.comm_logs import messages
from perfkit.trace.comm_logs.messages import Choice, Connection, Member

LONGEST_LINE: Final = 16_384
"""Bytes of a line that are read; the rest is skipped."""
_PIECE: Final = 1 << 16
_MARKER: Final = re.compile(rb"NCCL (INFO|WARN) ")
_ANSI: Final = re.compile(rb"\x1b\[[0-9;]{0,16}[A-Za-z]")
_HOST: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,254}")
_DEVICE: Final = re.compile(r"\[(\d{1,5})\]")
_MOST_HEAD: Final = 512
"""Bytes before the marker that may contain the origin of a line."""
_MOST_HEAD_WORDS: Final = 4
"""Words between the marker and the origin: device, place in the source and function."""


class Process(NamedTuple):
    """A process, which usually is one rank."""

    host: str
    id: int


class LogLine(NamedTuple):
    """A line that NCCL wrote."""

    level: Literal["INFO", "WARN"]
    process: Process | None
    """None if the line does not begin as NCCL writes it."""
    thread: int
    source: str
    """Place in NCCL's source that warns, `misc/socket.cc:483`; else empty."""
    text: str


def read_lines(stream: BufferedReader) -> Iterator[bytes]:
    """Yield lines without their ends, escape sequences of terminals, and what a carriage return overwrites."""
    while piece := stream.readline(LONGEST_LINE):
        line = piece.rstrip(b"\r\n")
        while piece and not piece.endswith(b"\n"):
            piece = stream.readline(_PIECE)
        if b"\x1b" in line:
            line = _ANSI.sub(b"", line)
        yield line.rpartition(b"\r")[2] if b"\r" in line else line


def is_garbled(line: bytes) -> bool:
    """Return whether two processes wrote into the same line, so that neither can be trusted."""
    return line.count(b"NCCL INFO ") + line.count(b"NCCL WARN ") > 1


def parse_line(line: bytes) -> LogLine | None:
    """Return a line that NCCL wrote; None if it did not."""
    marker = _MARKER.search(line)
    if marker is None:
        return None
    process, thread, source = _origin(line[max(marker.start() - _MOST_HEAD, 0) : marker.start()])
    text = line[marker.end() :].decode("utf-8", "replace").strip()
    return LogLine("WARN" if marker[1] == b"WARN" else "INFO", process, thread, source, text)


@lru_cache(4096)  # one per thread, in a log of millions of lines
def _origin(head: bytes) -> tuple[Process | None, int, str]:
    """Return process, thread and place in the source from what is before the marker."""
    words = head.decode("utf-8", "replace").split()
    for back in range(1, min(len(words), _MOST_HEAD_WORDS)):
        if _DEVICE.fullmatch(words[-back]):
            parts = words[-back - 1].rsplit(":", 3)[-3:]
            source = words[1 - back] if back > 1 else ""
            if len(parts) == 3 and _HOST.fullmatch(parts[0]) and _is_number(parts[1]) and _is_number(parts[2]):
                return Process(parts[0], int(parts[1])), int(parts[2]), source
            return None, 0, source
    return None, 0, ""


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) < 12


MOST_CONNECTIONS: Final = 200_000
MOST_MEMBERS: Final = 200_000
MOST_NOTES: Final = 2_000_000
"""Processes of all variables, versions and networks together."""
MOST_TEXTS: Final = 1_000
"""Distinct variables, versions, networks or interfaces, choices and warnings, of each."""
LONGEST_TEXT: Final = 300
_TIMEOUT: Final = b"Watchdog caught collective operation timeout"
"""torch's watchdog (ProcessGroupNCCL.cpp)."""
_COMMUNICATOR_LINES: Final = ("Init START", "Init COMPLETE", "Abort COMPLETE")
CommunicatorKey = tuple[str, ...]


class Device(NamedTuple):
    """A device of a process: one rank."""

    process: Process
    device: str


class LoggedConnection(NamedTuple):
    """A connection, by whom it was logged, and in which communicator, if that is certain."""

    process: Process | None
    communicator: CommunicatorKey | None
    connection: Connection


class Warned(NamedTuple):
    """A warning, or an error: NCCL does not tell them apart."""

    source: str
    text: str


ProcessT = TypeVar("ProcessT")
Noted = dict[tuple[str, str], set[ProcessT | None]]
"""Processes by name and value; None for one that is not known."""


@dataclass(slots=True)
class LogFacts:
    """What is counted of any log."""

    lines: int = 0
    garbled: int = 0
    left_out: int = 0
    """Facts beyond the limits."""
    notes: int = 0

    def note(self, noted: Noted[ProcessT], what: tuple[str, str], process: ProcessT | None) -> None:
        """Note that a process has a name and a value."""
        if what in noted and process in noted[what]:
            return
        if self.notes >= MOST_NOTES or (what not in noted and len(noted) >= MOST_TEXTS):
            self.left_out += 1
            return
        noted[what].add(process)
        self.notes += 1


@dataclass(slots=True)
class Communicator:
    """The ranks of a communicator that logged it."""

    ranks: int
    members: dict[int, Device] = field(default_factory=dict)
    device_names: dict[int, frozenset[str]] = field(default_factory=dict)
    rank_of: dict[Device, int] = field(default_factory=dict)
    is_ambiguous: bool = False
    """Whether several communicators without a name cannot be told apart."""
    shape: Counter[str] = field(default_factory=Counter)
    """Numbers of rings, trees and channels."""


@dataclass(slots=True)
class Sizes:
    """How often something was chosen, and for which sizes."""

    count: int = 0
    least: int = 0
    most: int = 0


@dataclass(slots=True)
class NcclFacts(LogFacts):
    """What the lines contain, by what they are about."""

    processes: set[Process] = field(default_factory=set)
    communicators: dict[CommunicatorKey, Communicator] = field(default_factory=dict)
    pointers: dict[tuple[Process, str], CommunicatorKey] = field(default_factory=dict)
    """The communicators, by how a process names them."""
    connections: Counter[LoggedConnection] = field(default_factory=Counter)
    choices: dict[Choice, Sizes] = field(default_factory=dict)
    variables: Noted[Process] = field(default_factory=lambda: defaultdict(set))
    versions: Noted[Process] = field(default_factory=lambda: defaultdict(set))
    networks: Noted[Process] = field(default_factory=lambda: defaultdict(set))
    without_infiniband: set[Process | None] = field(default_factory=set)
    """Processes that found no adapter."""
    warnings: Counter[Warned] = field(default_factory=Counter)
    first_warned: dict[Warned, Process | None] = field(default_factory=dict)
    warning_count: int = 0
    timeouts: int = 0
    """Lines: torch repeats the message."""
    first_timeout: str = ""
    aborts: int = 0


class NcclLogReader:
    """Reads logs one after the other into `facts`."""

    def __init__(self) -> None:
        self.facts = NcclFacts()
        self._initialising: dict[tuple[Process, int], CommunicatorKey] = {}
        self._shapes: dict[tuple[Process, int], Counter[str]] = {}
        self._members = 0

    def read(self, path: Path, each: Callable[[bytes], None] | None = None) -> int:
        """Read a file; return how many lines of it NCCL wrote. `each` is called with all of its lines.

        Raises:
            TraceError: It cannot be read, or is not a regular file.
        """
        before = self.facts.lines
        try:
            with open_regular(path) as stream:
                for line in read_lines(stream):
                    self.add(line)
                    if each is not None:
                        each(line)
        except OSError as error:
            raise TraceError(f"{path}: cannot be read: {error.strerror}") from error
        return self.facts.lines - before

    def add(self, line: bytes) -> None:
        """Take in one line, whoever wrote it."""
        if _TIMEOUT in line:
            self._timeout(line)
        if b"NCCL INFO " in line or b"NCCL WARN " in line:
            self.facts.lines += 1
            if is_garbled(line):
                self.facts.garbled += 1
                return
            parsed = parse_line(line)
            if parsed is not None:
                self._line(parsed)
        elif b" version " in line:
            # NCCL printed it without naming the process, after what a launcher put before it.
            text = line[:LONGEST_TEXT].decode("utf-8", "replace")
            for name in ("NCCL", "RCCL", "HIP", "ROCm"):
                at = text.find(f"{name} version ")
                found = messages.parse_versions(text[at:]) if at == 0 or (at > 0 and text[at - 1] in " :") else []
                for version in found:
                    self._note(self.facts.versions, version, None)

    def _line(self, line: LogLine) -> None:
        facts, process = self.facts, line.process
        if process is not None and len(facts.processes) < MOST_MEMBERS:
            facts.processes.add(process)
        if line.level == "WARN":
            self._warning(line)
        elif ": opCount " in line.text[:40]:  # each collective, with the subsystem COLL
            return
        elif (connection := messages.parse_connection(line.text)) is not None:
            self._connection(line, connection)
        elif line.text.endswith(_COMMUNICATOR_LINES):
            self._communicator(line)
        else:
            self._setting(line)

    def _setting(self, line: LogLine) -> None:
        """Take in what is not about a connection or a communicator."""
        facts, process = self.facts, line.process
        if (choice := messages.parse_choice(line.text)) is not None:
            self._choice(*choice)
        elif (variable := messages.parse_variable(line.text)) is not None:
            self._note(facts.variables, variable, process)
        elif (network := messages.parse_network(line.text)) is not None:
            self._note(facts.networks, network, process)
        elif line.text.startswith("NET/IB : No device found"):
            facts.without_infiniband.add(process if process in facts.processes else None)
        else:
            self._shape(line)
            for version in messages.parse_versions(line.text):
                self._note(facts.versions, version, process)

    def _note(self, noted: Noted[Process], what: tuple[str, str], process: Process | None) -> None:
        self.facts.note(noted, what, process if process in self.facts.processes else None)

    def _warning(self, line: LogLine) -> None:
        facts, warned = self.facts, Warned(line.source[:LONGEST_TEXT], line.text[:LONGEST_TEXT])
        facts.warning_count += 1
        if warned in facts.warnings or len(facts.warnings) < MOST_TEXTS:
            facts.warnings[warned] += 1
            facts.first_warned.setdefault(warned, line.process)

    def _timeout(self, line: bytes) -> None:
        self.facts.timeouts += 1
        if not self.facts.first_timeout:
            text = line[line.index(_TIMEOUT) :].decode("utf-8", "replace")
            self.facts.first_timeout = text.partition(": ")[2][:LONGEST_TEXT] or text[:LONGEST_TEXT]

    def _choice(self, choice: Choice, size: int) -> None:
        choices = self.facts.choices
        if choice not in choices and len(choices) >= MOST_TEXTS:
            self.facts.left_out += 1
            return
        sizes = choices.setdefault(choice, Sizes(least=size, most=size))
        sizes.count += 1
        sizes.least, sizes.most = min(sizes.least, size), max(sizes.most, size)

    def _connection(self, line: LogLine, connection: Connection) -> None:
        facts = self.facts
        # Later connections of a thread may belong to any communicator of its process.
        certain = None
        if line.process is not None:
            certain = facts.pointers.get((line.process, connection.pointer)) if connection.pointer else None
            certain = certain or self._initialising.get((line.process, line.thread))
        logged = LoggedConnection(line.process, certain, connection)
        if logged in facts.connections or len(facts.connections) < MOST_CONNECTIONS:
            facts.connections[logged] += 1
        else:
            facts.left_out += 1

    def _shape(self, line: LogLine) -> None:
        if line.process is None:
            return
        place = (line.process, line.thread)
        for name, number in messages.parse_shape(line.text).items():
            if place in self._shapes or len(self._shapes) < MOST_MEMBERS:
                shape = self._shapes.setdefault(place, Counter())
                shape[name] = max(shape[name], number)

    def _communicator(self, line: LogLine) -> None:
        if line.text.endswith("Abort COMPLETE"):
            self.facts.aborts += 1
            return
        begins, ends = line.text.endswith("Init START"), line.text.endswith("Init COMPLETE")
        member = messages.parse_member(line.text) if begins or ends else None
        if member is None or line.process is None:
            return
        place = (line.process, line.thread)
        key = (self._initialising.pop(place, None) if ends else None) or self._key(line.process, member)
        self._add_member(key, Device(line.process, member.device), member)
        if begins and len(self._initialising) < MOST_MEMBERS:
            self._initialising[place] = key
        if ends and key in self.facts.communicators:
            shape = self.facts.communicators[key].shape
            shape |= self._shapes.pop(place, Counter())

    def _key(self, process: Process, member: Member) -> CommunicatorKey:
        """Return what identifies a communicator on all of its ranks."""
        if member.communicator is not None:
            return (member.communicator,)
        if member.split_of is not None:
            pointer, *rest = member.split_of
            parent = repr(self.facts.pointers.get((process, pointer))).encode()
            # A digest: splits of splits would nest without end.
            return ("split", blake2b(parent, digest_size=16).hexdigest(), *rest, str(member.ranks))
        return ("unnamed", str(member.ranks))

    def _add_member(self, key: CommunicatorKey, device: Device, member: Member) -> None:
        if self._members >= MOST_MEMBERS:
            self.facts.left_out += 1
            return
        communicator = self.facts.communicators.setdefault(key, Communicator(member.ranks))
        if device not in communicator.rank_of or member.rank not in communicator.members:
            self._members += 1
        is_same = communicator.members.setdefault(member.rank, device) == device
        if communicator.rank_of.setdefault(device, member.rank) != member.rank or not is_same:
            communicator.is_ambiguous = True
        communicator.device_names[member.rank] = member.device_names
        if len(self.facts.pointers) < MOST_MEMBERS or (device.process, member.pointer) in self.facts.pointers:
            self.facts.pointers[device.process, member.pointer] = key
