"""The folder `.captures` of a run that is in progress, through which captures are asked for and agreed on.

::

    traces/<run>/.captures/open.json                      the run takes requests; the process of rank 0
                           capture-3/.request.json        what is asked for; the one who makes the folder may ask
                                     .rank<R>.at.json     the step at which a rank is, or why it refuses
                                     .plan.json           the steps that all ranks record
                                     .rank<R>.done.json   what a rank has recorded, after its files
                                     .nothing.json        why nothing was recorded
                                     rank<R>.json.gz      traces, as in a run's folder

A capture is finished by renaming its folder to `traces/<run>/capture-3`, and withdrawn by removing it. So it works on
any file system that the ranks share, whoever started them. Each file is written atomically, by one process. The number
of a withdrawn capture is free again: who takes part in one recognises it by its request's identifier.
"""

import contextlib
import os
import re
import secrets
import shutil
import time
from pathlib import Path
from typing import Annotated, Final, TypeVar

import msgspec
from msgspec import Meta, Struct

from perfkit.base.atomic_write import TEMPORARY_SUFFIX, atomic_write
from perfkit.base.regular_file import read_regular
from perfkit.base.validation import decode_json
from perfkit.errors import StoreError
from perfkit.record.process_stat import is_gone
from perfkit.records.manifest import RankRecord, StepKind

MAILBOX_NAME: Final = ".captures"
_OPEN_NAME: Final = "open.json"
_CAPTURE: Final = re.compile(r"capture-(\d{1,9})")
_MOST_BYTES: Final = 1 << 20
_RECENT_S: Final = 3.0
"""File systems date changes to a few milliseconds or a second: after a recent one there may be another."""

T = TypeVar("T")


class OpenMark(Struct, frozen=True, kw_only=True):
    """Marks that the run takes requests."""

    host: str
    """Of rank 0, as `pid` and `started` (see `ProcessIdentity`)."""
    pid: int
    started: str = ""
    poll_s: Annotated[float, Meta(ge=0, le=3600)]


class Request(Struct, frozen=True, kw_only=True):
    """Asks for a capture."""

    steps: int
    identifier: str = msgspec.field(default_factory=lambda: secrets.token_hex(8))
    """Distinguishes it from one that was withdrawn, whose number is free again."""
    ranks: list[int] | None = None
    """None: all."""
    condition: str | None = None
    """The condition that asks, None for a person."""
    reason: str | None = None
    """What the condition saw."""
    at_step: int | None = None
    """The step at which it held."""
    first_step: int | None = None
    """Record from this step, or as many periods later as it takes; None: as early as possible."""
    period: int | None = None


class Answer(Struct, frozen=True, kw_only=True):
    """Where a rank is."""

    rank: int
    step: int
    step_ns: int | None
    """Median of its last steps; None if no step has ended."""
    free_until: int | None = None
    """The last step before the run's own schedule records again; None if it does not."""
    refusal: str | None = None


class Plan(Struct, frozen=True, kw_only=True):
    """What all ranks record."""

    identifier: str
    first_step: int
    steps: int
    ranks: list[int]


class Done(Struct, frozen=True, kw_only=True):
    """What a rank has recorded."""

    identifier: str
    record: RankRecord | None = None
    kinds: list[StepKind] = []
    steps: int = 0
    problem: str | None = None
    """Why there are fewer than planned."""


class Slot:
    """The files of one capture that is in progress.

    Args:
        identifier: That of its request: if it is withdrawn, another one of the same number is not taken for it. None:
            whichever capture has the number.
    """

    def __init__(self, run_folder: Path, number: int, identifier: str | None = None) -> None:
        self.run_folder = run_folder
        self.number = number
        self.identifier = identifier
        self.folder = run_folder / MAILBOX_NAME / f"capture-{number}"
        self.target = run_folder / f"capture-{number}"

    def exists(self) -> bool:
        """Whether the capture is in progress: neither finished nor withdrawn."""
        if self.identifier is None:
            return self.folder.is_dir()
        request = self.request()
        return request is not None and request.identifier == self.identifier

    def is_finished(self) -> bool:
        """Whether a capture of this number is finished, as the run's folder is listed.

        A network file system may repeat for half a minute that a folder which was looked up before does not exist.
        """
        return self.number in _numbers(self.run_folder)

    def of(self, request: Request) -> "Slot":
        """Return the same files, as far as they belong to a request."""
        return Slot(self.run_folder, self.number, request.identifier)

    def write(self, name: str, message: Struct | dict[str, str]) -> None:
        with atomic_write(self.folder / name) as stream:
            stream.write(msgspec.json.encode(message))

    def read(self, name: str, kind: type[T]) -> T | None:
        """Return a message; None if it is not there, or damaged."""
        return _read(self.folder / name, kind)

    def request(self) -> Request | None:
        return self.read(".request.json", Request)

    def plan(self) -> Plan | None:
        plan = self.read(".plan.json", Plan)
        return None if plan is None or self.identifier not in (None, plan.identifier) else plan

    def names(self) -> set[str]:
        """Return the names of all messages: listing a folder shows new files on a network file system too."""
        try:
            return {entry.name for entry in os.scandir(self.folder)}
        except OSError:
            return set()

    def answers(self, ranks: set[int]) -> dict[int, Answer]:
        return self._by_rank("at", Answer, ranks)

    def done(self, plan: Plan) -> dict[int, Done]:
        done = self._by_rank("done", Done, set(plan.ranks))
        return {rank: one for rank, one in done.items() if one.identifier == plan.identifier}

    def ranks_with(self, what: str) -> set[int]:
        """Return the ranks that have left a message: `at` or `done`."""
        found = (re.fullmatch(rf"\.rank(\d{{1,9}})\.{what}\.json", name) for name in self.names())
        return {int(match[1]) for match in found if match}

    def remove(self) -> None:
        """Withdraw the capture; ranks notice that its folder is gone.

        It is renamed first, as it is to finish it: of two processes that do one and the other, only one succeeds, and
        no capture is finished with half of its files.
        """
        request = self.request()
        if self.identifier is not None and request is not None and request.identifier != self.identifier:
            return  # it has been withdrawn, and its number is another's
        withdrawn = self.folder.with_name(f".{self.folder.name}.{secrets.token_hex(8)}{TEMPORARY_SUFFIX}")
        with contextlib.suppress(OSError):  # it is finished, or withdrawn
            self.folder.rename(withdrawn)
            _remove_folder(withdrawn)

    def _by_rank(self, what: str, kind: type[T], ranks: set[int]) -> dict[int, T]:
        read = {rank: self.read(f".rank{rank}.{what}.json", kind) for rank in sorted(ranks & self.ranks_with(what))}
        return {rank: message for rank, message in read.items() if message is not None}


class Mailbox:
    """The folder `.captures` of a run."""

    def __init__(self, run_folder: Path) -> None:
        self.run_folder = run_folder
        self.folder = run_folder / MAILBOX_NAME
        self._seen_ns = 0

    def open(self, mark: OpenMark) -> None:
        """Create the folder, and mark that the run takes requests."""
        try:
            self.folder.mkdir(exist_ok=True)
        except OSError as error:
            raise StoreError(f"cannot create {self.folder}: {error.strerror}") from error
        with atomic_write(self.folder / _OPEN_NAME) as stream:
            stream.write(msgspec.json.encode(mark))

    def mark(self) -> OpenMark | None:
        """Return the mark that the run takes requests; None if it does not."""
        return _read(self.folder / _OPEN_NAME, OpenMark)

    def close(self) -> None:
        with contextlib.suppress(OSError):
            (self.folder / _OPEN_NAME).unlink(missing_ok=True)

    def remove_if_over(self) -> None:
        """Remove the folder, if the run takes no more requests and none is in progress."""
        with contextlib.suppress(OSError):
            for withdrawn in self.folder.glob(f".capture-*{TEMPORARY_SUFFIX}"):
                _remove_folder(withdrawn)
            self.folder.rmdir()  # it contains the mark, or a capture, otherwise

    def has_changed(self) -> bool:
        """Return whether captures may have come or gone since the last call; False if the folder cannot be read."""
        try:
            changed_ns = self.folder.stat().st_mtime_ns
        except OSError:
            return False
        before, self._seen_ns = self._seen_ns, changed_ns
        return changed_ns != before or abs(time.time() - changed_ns / 1e9) < _RECENT_S

    def in_progress(self) -> list[Slot]:
        return [Slot(self.run_folder, number) for number in sorted(_numbers(self.folder))]

    def next_number(self) -> int:
        return max([0, *_numbers(self.folder), *_numbers(self.run_folder)]) + 1


DIED: Final = "rank 0 was killed, or ended without a message"
"""What is said of a run that has died."""


def has_died(run_folder: Path) -> bool:
    """Return whether rank 0 of a run ran on this host, and is gone without a message, so that the run is over.

    That is known from the end of the first step on: from then on a run takes requests.
    """
    mark = Mailbox(run_folder).mark()
    return mark is not None and is_gone(mark.host, mark.pid, mark.started)


def finished_captures(run_folder: Path) -> list[Path]:
    return [run_folder / f"capture-{number}" for number in sorted(_numbers(run_folder))]


def _remove_folder(folder: Path) -> None:
    """Remove what was withdrawn, into which a rank may be writing."""
    for _ in range(3):
        shutil.rmtree(folder, ignore_errors=True)
        if not folder.is_dir():
            return
        time.sleep(0.05)


def _numbers(folder: Path) -> set[int]:
    try:
        matches = [_CAPTURE.fullmatch(entry.name) for entry in os.scandir(folder)]
    except OSError:
        return set()
    return {int(match[1]) for match in matches if match}


def _read(path: Path, kind: type[T]) -> T | None:
    try:
        return decode_json(read_regular(path, most_bytes=_MOST_BYTES), kind)
    except (OSError, msgspec.DecodeError):
        return None
