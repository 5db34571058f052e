"""Compares what the ranks wrote, prints one line about it, and ends the run if that is wanted."""

import contextlib
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, Literal, NoReturn

import msgspec

from perfkit.base.atomic_write import atomic_write
from perfkit.base.formatting import duration, shell_word
from perfkit.base.polling import SHARED_POLL_S
from perfkit.engine.hangs.folder import diagnose_folder
from perfkit.errors import PerfkitError, RunError, StoreError
from perfkit.options.recording import RecordingOptions
from perfkit.record.hangs.held_lock import ask_for_stack
from perfkit.record.hangs.rank_state import read_answers, write_rank_state
from perfkit.record.hangs.step_watch import END_NAME, Hang, StepWatch
from perfkit.record.lifecycle.failure_guard import record_failure
from perfkit.record.lifecycle.launched_runs import FirstFailure, write_first_failure
from perfkit.record.lifecycle.local_launch import is_child
from perfkit.record.lifecycle.parent_watch import exit_now, write_within
from perfkit.record.messages import print_error, print_warning
from perfkit.record.process_stat import SILENT, Processes, absent_ranks, kill_ranks, silent_ranks
from perfkit.records.hang import Diagnosis, NoticedHang, RankState
from perfkit.storage.hang_log import add_hang

DIAGNOSIS_NAME: Final = "hang.json"
_FLUSH_S: Final = 1.0
"""How long the line, and the program's last output, may take to be written: that may be what does not return."""

OnHang = Literal["report", "end"]


class HangReporter:
    """Reports that no step ends.

    Args:
        on_hang: Whether the run is then ended.
        absent: Ranks that have ended or are stopped, and how.
    """

    def __init__(
        self,
        rank: int,
        on_hang: OnHang,
        absent: Callable[[], Mapping[int, str]],
        processes: Callable[[], Processes],
    ) -> None:
        self._rank = rank
        self._on_hang = on_hang
        self._absent = absent
        self._processes = processes
        self._answered_for: set[int] = set()
        """Ranks that could not answer, and of which the stack was had all the same."""

    def report(self, hang: Hang) -> None:
        """Print the diagnosis, and end the run if that is wanted; called on the rank that noticed it first.

        A run is not ended if no rank was found to keep the others waiting, if such a rank is in a pause (rank 0 may
        write a checkpoint alone), or if its steps go on.
        """
        self._answer_for_silent(hang)
        found = save_diagnosis(hang.folder, self._absent(), silent_ranks(self._processes()))
        what = "no step has ended for" if hang.step else "the first step has not ended after"
        line = (
            f"{what} {duration(round(hang.idle_s * 1e9))}: {found.headline}; where every rank is: "
            f"perfkit diagnose {shell_word(hang.folder)}"
        )
        blamed = {rank for fault in found.faults for rank in fault.ranks}
        only_slow = not blamed or read_answers(hang.folder, blamed, hang.request).paused
        if self._on_hang == "report" or only_slow or hang.resumed():
            _remember(hang, sorted(blamed), found.headline)
            print_warning(line)
            return
        if record_failure(hang.folder, self._rank, RunError(line), None):
            if is_child():  # the parent prints it: it must not take the end of a rank that is killed here for the cause
                write_first_failure(FirstFailure(self._rank, line, ends_others=True), first=True)
            else:
                write_within(_FLUSH_S, lambda: print_error(line))
        with contextlib.suppress(OSError):  # a full disk: the others notice that this rank is gone
            (hang.folder / END_NAME).touch()
        self._end(hang.folder, hang.request)

    def end_with_others(self, folder: Path, request: int) -> None:
        """End this rank, which has answered the request, if the run is ended."""
        if self._on_hang == "end" and (folder / END_NAME).exists():
            self._end(folder, request)

    def _answer_for_silent(self, hang: Hang) -> None:
        """Write the stacks of ranks of this host that have not answered, because a call holds Python's lock."""
        processes = self._processes()
        unable = {rank for rank, text in silent_ranks(processes).items() if text == SILENT}
        for rank in read_answers(hang.folder, set(processes), hang.request).missing & unable:
            pid = processes[rank].pid
            if main := ask_for_stack(pid):
                write_rank_state(hang.folder, RankState(rank=rank, pid=pid, main=main, request=hang.request))
                self._answered_for.add(rank)

    def _end(self, folder: Path, request: int) -> NoReturn:
        processes = self._processes()
        kill_ranks(processes, read_answers(folder, set(processes), request).missing | self._answered_for)
        exit_now(1, flush_limit_s=_FLUSH_S)


class DiagnosedWatch(StepWatch):
    """Watches the steps of one rank, and reports by the options if none ends.

    Args:
        processes: Returns those of the ranks, as far as they are known.
        is_busy: As in `StepWatch`.
        absent: Ranks that have ended or are stopped, and how; without it, what the system shows of their processes.
    """

    def __init__(
        self,
        folder: Path,
        rank: int,
        world_size: int,
        options: RecordingOptions,
        processes: Callable[[], Processes],
        is_busy: Callable[[], bool],
        absent: Callable[[], dict[int, str]] | None = None,
    ) -> None:
        absent = absent or (lambda: absent_ranks(processes()))
        reporter = HangReporter(rank, options.on_hang, absent, processes)
        report, follow = reporter.report, reporter.end_with_others
        super().__init__(folder, rank, world_size, options.hang_after_s, report, follow, is_busy, absent)


def _remember(hang: Hang, blamed: list[int], headline: str) -> None:
    noticed = NoticedHang(
        noticed_at=datetime.now(UTC).isoformat(timespec="seconds"),
        step=hang.step,
        idle_ns=round(hang.idle_s * 1e9),
        ranks=blamed,
        headline=headline,
    )
    try:
        add_hang(hang.folder, noticed)
    except StoreError as error:
        print_warning(f"the report of this run will lack that: {error}")


def save_diagnosis(folder: Path, absent: Mapping[int, str], silent: Mapping[int, str]) -> Diagnosis:
    """Compare what the ranks have left, and write it to `hang.json`.

    Raises:
        StoreError: There is nothing to compare, or it cannot be written.
    """
    from perfkit.report.wording import worded  # not before it is needed: training waits for what is imported

    found = worded(diagnose_folder(folder, absent=absent, silent=silent))
    with atomic_write(folder / DIAGNOSIS_NAME) as stream:
        stream.write(msgspec.json.format(msgspec.json.encode(found), indent=2) + b"\n")
    return found


def diagnose_lost_ranks(
    folder: Path,
    ranks: set[int],
    request: int,
    *,
    absent: Callable[[], Mapping[int, str]],
    silent: Callable[[], Mapping[int, str]],
    wait_s: float,
) -> str:
    """Return why ranks have lost each other, once those that are alive have written what they did; empty if unknown.

    Args:
        request: Number of the request that those which still wait for others answer.
        absent: Ranks that have ended or are stopped, and how.
    """
    deadline = time.monotonic() + wait_s
    awaited = ranks
    while time.monotonic() < deadline:
        awaited = read_answers(folder, awaited, request).missing
        if not awaited - absent().keys():
            break
        time.sleep(SHARED_POLL_S)
    try:
        found = save_diagnosis(folder, absent(), silent())
    except PerfkitError:
        return ""
    return found.headline if any(fault.kind != "gone" for fault in found.faults) else ""
