"""Collects what oneCCL logs (`CCL_LOG_LEVEL=info`; warnings by default), in memory that does not grow with the log.

The format is that of oneCCL's src/common/log: date, time and number of the process, `|CCL_INFO| text`; of errors also
the place in the source. `2026:05:12-10:31:07:( 4711) |CCL_WARN| value of CCL_OP_SYNC changed to be 1 (default:0)`.
Newer versions write the number without parentheses. A launcher may have put something before it.
"""

import re
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import Final

from perfkit.trace.comm_logs.facts import LONGEST_TEXT, MOST_TEXTS, LogFacts, Noted

_MARKER: Final = re.compile(rb"\|CCL_(INFO|WARN|ERROR)\| ?")
_PROCESS: Final = re.compile(rb"\d{4}:\d\d:\d\d-\d\d:\d\d:\d\d:(?:\( {0,9}(\d{1,10})\)|(\d{1,10})) $")
_MOST_HEAD: Final = 64
_VARIABLE: Final = re.compile(r"value of (CCL_[A-Z0-9_]{1,80}) changed to be (.{0,200}?) \(default:(.{0,200})\)$")
_NETWORK_INTERFACE: Final = re.compile(r"nic: \{ name ([^,]{1,100}),")
_PREFIXES: Final = {"library version: ": "oneCCL", "libfabric version: ": "libfabric"}
_PROVIDER: Final = "provider: "
_MOST_PROCESSES: Final = 200_000

Process = tuple[str, int]
"""Log file, and number of the process: oneCCL does not log its host."""


@dataclass(slots=True)
class OneCclFacts(LogFacts):
    """What the lines contain, by what they are about."""

    processes: set[Process] = field(default_factory=set)
    versions: Noted[Process] = field(default_factory=lambda: defaultdict(set))
    providers: Noted[Process] = field(default_factory=lambda: defaultdict(set))
    """Of libfabric, and the network interfaces that they use."""
    variables: Noted[Process] = field(default_factory=lambda: defaultdict(set))
    """Those that are not at their defaults."""
    warnings: Counter[str] = field(default_factory=Counter)
    warning_count: int = 0
    errors: Counter[str] = field(default_factory=Counter)
    error_count: int = 0


class OneCclReader:
    """Takes in the lines of logs, one after the other, into `facts`."""

    def __init__(self) -> None:
        self.facts = OneCclFacts()

    def add(self, line: bytes, file: str) -> None:
        """Take in one line, whoever wrote it."""
        if b"|CCL_" not in line or (marker := _MARKER.search(line)) is None:
            return
        self.facts.lines += 1
        if _MARKER.search(line, marker.end()):  # two processes wrote at once: neither can be trusted
            self.facts.garbled += 1
            return
        found = _PROCESS.search(line[max(marker.start() - _MOST_HEAD, 0) : marker.start()])
        process = self._process((file, int(found[1] or found[2]))) if found else None
        text = line[marker.end() :].decode("utf-8", "replace").strip()
        if marker[1] == b"ERROR":
            self.facts.error_count += 1
            self._count(self.facts.errors, text)
        elif (variable := _VARIABLE.match(text)) is not None:
            self.facts.note(self.facts.variables, (variable[1], f"{variable[2]} (default {variable[3]})"), process)
        elif marker[1] == b"WARN":
            self.facts.warning_count += 1
            self._count(self.facts.warnings, text)
        else:
            self._information(text, process)

    def _information(self, text: str, process: Process | None) -> None:
        for prefix, name in _PREFIXES.items():
            if text.startswith(prefix):
                self.facts.note(self.facts.versions, (name, text[len(prefix) :].partition(" ")[0][:100]), process)
        if text.startswith(_PROVIDER):
            self.facts.note(self.facts.providers, ("provider", text[len(_PROVIDER) :][:100]), process)
        elif (interface := _NETWORK_INTERFACE.match(text)) is not None:
            self.facts.note(self.facts.providers, ("network interface", interface[1]), process)

    def _process(self, process: Process) -> Process | None:
        if process not in self.facts.processes and len(self.facts.processes) >= _MOST_PROCESSES:
            return None
        self.facts.processes.add(process)
        return process

    def _count(self, counts: Counter[str], text: str) -> None:
        shown = text[:LONGEST_TEXT]
        if shown in counts or len(counts) < MOST_TEXTS:
            counts[shown] += 1
        else:
            self.facts.left_out += 1
