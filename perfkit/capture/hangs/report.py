"""Compares what the ranks wrote, prints one line about it, and ends the run if that is wanted."""

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final, Literal, NoReturn

import msgspec

from perfkit.capture.hangs.processes import Places, kill_ranks
from perfkit.capture.hangs.step_watch import Hang
from perfkit.capture.lifecycle.failure_guard import record_failure
from perfkit.capture.lifecycle.first_failure import FirstFailure, write_first_failure
from perfkit.capture.lifecycle.local_launch import is_child
from perfkit.capture.lifecycle.parent_watch import exit_now
from perfkit.capture.messages import print_error, print_warning
from perfkit.diagnosis.folder import STATE_NAME, diagnose_folder
from perfkit.errors import PerfkitError, RunError
from perfkit.schema.hang.diagnosis import Diagnosis
from perfkit.storage.run_folder import read_failure
from perfkit.util.atomic_write import atomic_write
from perfkit.util.formatting import duration

DIAGNOSIS_NAME: Final = "hang.json"
_END_WAIT_S: Final = 10.0
_POLL_S: Final = 0.1

OnHang = Literal["report", "end"]


class HangReporter:
    """Reports that no step ends.

    Args:
        rank: This rank.
        on_hang: Whether the run is then ended.
        gone: What is to be said of ranks that have left nothing.
        places: Where the ranks run.
        by_parent: Whether the parent prints the error of a run that is ended, under `perfkit run -n`.
    """

    def __init__(
        self,
        rank: int,
        on_hang: OnHang,
        gone: Callable[[], Mapping[int, str]],
        places: Callable[[], Places],
        *,
        by_parent: bool = False,
    ) -> None:
        self._rank = rank
        self._on_hang = on_hang
        self._gone = gone
        self._places = places
        self._by_parent = by_parent

    def report(self, hang: Hang) -> None:
        """Print the diagnosis, and end the run if that is wanted; called on the rank that noticed it first."""
        found = save_diagnosis(hang.folder, self._gone())
        line = (
            f"no step has ended for {duration(round(hang.idle_s * 1e9))}: {found.headline}; where every rank is: "
            f"perfkit diagnose {hang.folder}"
        )
        if self._on_hang == "report":
            print_warning(line)
            return
        record_failure(hang.folder, self._rank, RunError(line), None)
        if self._by_parent and is_child():
            write_first_failure(FirstFailure(self._rank, line), first=True)
        else:
            print_error(line)
        self._end(hang.folder)

    def end_with_others(self, folder: Path) -> None:
        """End this rank, which has written what it does, once the diagnosis is printed."""
        deadline = time.monotonic() + _END_WAIT_S
        while self._on_hang == "end" and time.monotonic() < deadline:
            if read_failure(folder) is not None:
                self._end(folder)
            time.sleep(_POLL_S)

    def _end(self, folder: Path) -> NoReturn:
        places = self._places()
        kill_ranks(places, [rank for rank in places if not (folder / STATE_NAME.format(rank)).exists()])
        exit_now(1)


def save_diagnosis(folder: Path, gone: Mapping[int, str]) -> Diagnosis:
    """Compare what the ranks have left, and write it to `hang.json`.

    Raises:
        StoreError: There is nothing to compare, or it cannot be written.
    """
    found = diagnose_folder(folder, absent=gone)
    with atomic_write(folder / DIAGNOSIS_NAME) as stream:
        stream.write(msgspec.json.format(msgspec.json.encode(found), indent=2) + b"\n")
    return found


def diagnose_lost_ranks(folder: Path, world_size: int, gone: Callable[[], Mapping[int, str]], wait_s: float) -> str:
    """Return why ranks have lost each other, once those that are alive have written what they did; empty if unknown.

    Args:
        folder: The run's folder.
        world_size: Number of ranks.
        gone: What is to be said of ranks that have left nothing.
        wait_s: How long to wait for the others.
    """
    deadline = time.monotonic() + wait_s
    ranks = set(range(world_size))
    while any(not (folder / STATE_NAME.format(rank)).exists() for rank in ranks - gone().keys()):
        if time.monotonic() > deadline:
            break
        time.sleep(_POLL_S)
    try:
        found = save_diagnosis(folder, gone())
    except PerfkitError:
        return ""
    return found.headline if any(fault.kind != "gone" for fault in found.faults) else ""
