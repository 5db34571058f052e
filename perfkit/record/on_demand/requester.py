"""Asks for a capture, and agrees with the ranks on its steps: `perfkit capture`, and the rank whose condition holds.

No collective is issued. Every rank answers with the step that it is at; the steps to record are so many ahead of the
one that is furthest that all ranks learn of them in time. A rank that does not is named in the capture.
"""

import math
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

from perfkit.base.polling import SHARED_POLL_S
from perfkit.errors import CaptureBusyError, CaptureError, StoreError
from perfkit.record.on_demand.completion import complete
from perfkit.record.on_demand.mailbox import Answer, Mailbox, OpenMark, Plan, Request, Slot, has_died
from perfkit.record.process_stat import is_gone
from perfkit.records.manifest import RunManifest
from perfkit.storage.run_folder import read_manifest

ANSWER_S: Final = 60.0
"""How long to wait for the first rank's answer: network file systems may show a new file late."""
MOST_STEPS: Final = 1000

_MORE_ANSWERS_S: Final = 10.0
"""How long to wait for other ranks after the last answer."""
_LEAD_POLLS: Final = 1.5
"""How far ahead the first step is, in times that ranks take to look for requests; for the plan they look more often."""


def ask(folder: Path, request: Request) -> Slot:
    """Ask a run that is in progress for a capture.

    Raises:
        StoreError: There is no such run, or its folder cannot be written.
        CaptureBusyError: Another capture is in progress.
        CaptureError: The run has ended, or takes no captures.
    """
    state = read_manifest(folder).state
    if state != "running":
        raise CaptureError(f"{folder}: the run has {state}: only coming steps can be captured")
    mailbox = Mailbox(folder)
    _require_open(folder, mailbox.mark())
    others = mailbox.in_progress()
    slot = Slot(folder, mailbox.next_number())
    try:
        if not others:
            slot.folder.mkdir()
    except FileExistsError:
        others = [slot]
    except FileNotFoundError as error:
        raise CaptureError(f"{folder}: the run has just ended") from error
    except OSError as error:
        raise StoreError(f"cannot create {slot.folder}: {error.strerror}") from error
    if others:
        raise CaptureBusyError(f"{folder}: {others[0].target.name} is in progress")
    if slot.target.exists():  # another capture has been asked for and finished since the folder was listed
        slot.remove()
        raise CaptureBusyError(f"{folder}: {slot.target.name} has just been recorded")
    try:
        _write_message(slot, ".request.json", request)
        # Again: a run that ends takes its mark away, and then removes the requests that are there by then.
        if mailbox.mark() is None:
            raise CaptureError(f"{folder}: the run has just ended")
    except BaseException:
        withdraw(slot)
        raise
    return slot.of(request)


def agree(slot: Slot, ranks: Iterable[int], wait: Callable[[float], object] = time.sleep) -> tuple[Plan, float | None]:
    """Wait for the ranks' answers, and tell them which steps to record.

    Returns:
        The plan, and in how many seconds its first step begins, as far as is known.

    Raises:
        CaptureError: No rank answers, one refuses, or the capture was withdrawn; nothing is recorded.
        StoreError: The plan cannot be written.
    """
    try:
        answers = _gather(slot, set(ranks), wait)
        plan, in_s = make_plan(slot, answers)
        _write_message(slot, ".plan.json", plan)
    except BaseException:
        withdraw(slot)
        raise
    return plan, in_s


def make_plan(slot: Slot, answers: dict[int, Answer]) -> tuple[Plan, float | None]:
    """Return the steps to record, and in how many seconds the first begins."""
    for rank, answer in answers.items():
        if answer.refusal is not None:
            raise CaptureError(f"{slot.run_folder}: rank {rank} {answer.refusal}")
    request = slot.request()
    if request is None:
        raise CaptureError(f"{slot.run_folder}: {slot.target.name} was withdrawn")
    step = max(answer.step for answer in answers.values())
    durations_ns = [answer.step_ns for answer in answers.values() if answer.step_ns is not None]
    fastest_s = min(durations_ns) / 1e9 if durations_ns else None
    mark = Mailbox(slot.run_folder).mark()
    lead_s = _LEAD_POLLS * (1.0 if mark is None else mark.poll_s)
    lead = 2 + (0 if fastest_s is None else math.ceil(lead_s / max(fastest_s, 1e-6)))
    first = _first_step(request, step + lead)
    for answer in answers.values():
        if answer.free_until is not None and first + request.steps - 1 > answer.free_until:
            raise CaptureError(
                f"{slot.run_folder}: steps {first} to {first + request.steps - 1} are too close to those that the "
                f"run's schedule records from step {answer.free_until + 1}: ask again after that"
            )
    in_s = None if fastest_s is None else (first - step) * fastest_s
    plan = Plan(identifier=request.identifier, first_step=first, steps=request.steps, ranks=sorted(answers))
    return plan, in_s


def _write_message(slot: Slot, name: str, message: Request | Plan) -> None:
    """Write what the ranks are to do."""
    try:
        slot.write(name, message)
    except StoreError as error:
        if slot.folder.is_dir():
            raise
        raise CaptureError(f"{slot.run_folder}: {slot.target.name} was withdrawn, or its run has ended") from error


def _first_step(request: Request, earliest: int) -> int:
    wanted = request.first_step
    if wanted is None or (wanted < earliest and request.period is None):
        return earliest
    if wanted >= earliest or request.period is None:
        return wanted
    return wanted + request.period * math.ceil((earliest - wanted) / request.period)


def await_end(
    slot: Slot, plan: Plan, silence_s: float, wait: Callable[[float], object] = time.sleep
) -> tuple[Path, RunManifest]:
    """Wait until the capture is finished; if nothing happens for `silence_s`, finish it with the ranks that are done.

    Returns:
        Its folder and its manifest.

    Raises:
        CaptureError: Nothing was recorded.
        StoreError: The capture cannot be finished, or read.
    """
    _wait_for_ranks(slot, silence_s, wait)
    if (nothing := slot.read(".nothing.json", dict[str, str])) is not None:
        withdraw(slot)
        reasons = "; ".join(dict.fromkeys(nothing.values()))
        raise CaptureError(f"{slot.run_folder}: nothing was recorded: {reasons}")
    if not slot.is_finished():
        withdraw(slot)
        raise CaptureError(
            f"{slot.run_folder}: no rank has recorded step {plan.first_step} within {silence_s:g}s: "
            "if the steps take longer, ask with a longer --timeout"
        )
    manifest = read_manifest(slot.target)
    if manifest.capture is None or manifest.capture.first_step != plan.first_step:
        raise CaptureError(f"{slot.run_folder}: {slot.target.name} was withdrawn, and another was asked for: no trace")
    return slot.target, manifest


def _wait_for_ranks(slot: Slot, silence_s: float, wait: Callable[[float], object]) -> None:
    seen, since = slot.names(), time.monotonic()
    while not slot.target.is_dir():
        wait(SHARED_POLL_S)
        names = slot.names()
        if names != seen:
            seen, since = names, time.monotonic()
            complete(slot)
        if not slot.exists():
            if slot.is_finished():
                return
            raise CaptureError(f"{slot.run_folder}: {slot.target.name} was withdrawn, or its run has ended: no trace")
        is_killed = has_died(slot.run_folder)
        if is_killed or time.monotonic() - since > silence_s:
            complete(slot, absent="the run was killed" if is_killed else f"nothing was heard of it for {silence_s:g}s")
            return
        if ".nothing.json" in names:
            return


def withdraw(slot: Slot) -> None:
    """Remove a request, or a capture in progress: ranks that record it stop."""
    slot.remove()
    Mailbox(slot.run_folder).remove_if_over()


def _gather(slot: Slot, ranks: set[int], wait: Callable[[float], object]) -> dict[int, Answer]:
    """Wait for the answers of the ranks; those that come long after the others are not waited for."""
    there: set[int] = set()
    deadline = time.monotonic() + ANSWER_S
    while not there >= ranks and time.monotonic() < deadline:
        wait(SHARED_POLL_S)
        now_there = slot.ranks_with("at") & ranks
        if now_there != there:
            there, deadline = now_there, time.monotonic() + _MORE_ANSWERS_S
        if not slot.exists():
            raise CaptureError(f"{slot.run_folder}: {slot.target.name} was withdrawn, or its run has ended")
        if has_died(slot.run_folder):
            break
    answers = slot.answers(ranks)
    if not answers:
        raise CaptureError(f"{slot.run_folder}: no rank answers: has the run been killed?")
    return answers


def _require_open(folder: Path, mark: OpenMark | None) -> None:
    if mark is None:
        raise CaptureError(
            f"{folder}: the run takes no captures: it is about to end, or an older perfkit records it; a script takes "
            "them once its first step has ended"
        )
    if is_gone(mark.host, mark.pid, mark.started):
        raise CaptureError(f"{folder}: the run was killed: its rank 0, process {mark.pid} of this host, is gone")
