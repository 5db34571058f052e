"""Lets a rank record coming steps while it runs: a thread looks for requests, and a step costs the reading of a flag.

Nothing that goes wrong here reaches the program: the capture fails, in one line, and the run goes on.
"""

import contextlib
import threading
import time
from collections.abc import Callable
from typing import Final

from msgspec.structs import replace
from torch.autograd import profiler as autograd_profiler

from perfkit.base.polling import watch_s
from perfkit.errors import StoreError
from perfkit.options.conditions import CaptureRules
from perfkit.options.schedule import Schedule
from perfkit.record.distributed.topology import Topology
from perfkit.record.messages import one_line, print_status, print_warning
from perfkit.record.on_demand.completion import complete
from perfkit.record.on_demand.mailbox import Answer, Done, Mailbox, OpenMark, Plan, Slot, has_died
from perfkit.record.on_demand.rank_capture import LightStep, RankCapture, StepRing
from perfkit.record.on_demand.requesting_rank import RequestingRank
from perfkit.record.own_threads import start_own_thread
from perfkit.record.process_stat import process_identity
from perfkit.record.recording.loader_watch import prepared_steps
from perfkit.record.recording.recording import Recording
from perfkit.record.step_listener import StepListener
from perfkit.records.manifest import StepKind
from perfkit.storage.run_folder import MANIFEST_NAME

OPEN_POLLS: Final = 10
"""A rank that has answered a request looks so many times as often for the plan."""
_FORGOTTEN_S: Final = 120.0
"""A request whose sender has gone is removed after so long."""
_OTHER_PROFILER: Final = "is recording with its own profiler"


class CaptureAgent(StepListener):
    """Records captures on one rank of a run.

    Args:
        load_ns: Returns how long the last step waited for its batch, None if unknown; by default what the recording
            knows.
    """

    _slot: Slot | None = None
    """The capture that is asked for or in progress, until this rank is done with it."""
    _plan: Plan | None = None
    _capture: RankCapture | None = None
    _handled = ""
    _others_in_progress = False
    _kind: StepKind | None = None
    _warm_from = 0
    """From this step on none is cold because of the last capture."""
    _has_failed = False
    """Whether an error has ended captures before the run's end."""

    def __init__(
        self,
        recording: Recording,
        topology: Topology,
        schedule: Schedule | None,
        rules: CaptureRules,
        load_ns: Callable[[], int | None] | None = None,
    ) -> None:
        self._load_ns = load_ns or (lambda: recording.last_load_ns)
        self._recording = recording
        self._rank = recording.rank
        self._topology = topology
        self._schedule = schedule
        self._pauses = recording.pauses.state
        self._mailbox = Mailbox(recording.folder)
        self._requesting = (
            RequestingRank(recording.folder, recording.world_size, rules)
            if rules.conditions and rules.captures
            else None
        )
        self._late = rules.late if recording.rank == 0 else None
        self._poll_s = watch_s(recording.world_size)
        self._ring = StepRing()
        self._open_poll_s = self._poll_s / OPEN_POLLS
        self._stopped = threading.Event()
        self._lock = threading.RLock()  # a signal handler may close this within it
        self._steps = 0
        self._begin_ns = time.perf_counter_ns()
        self._paused_ns = 0
        self._unix_ns = time.time_ns() - time.perf_counter_ns()
        self._plain_after = 1 if schedule is None else schedule.steps + 1
        """Later steps follow one that the schedule leaves alone."""

    @property
    def annotates(self) -> bool:
        """Whether the step in progress is recorded."""
        return self._capture is not None and self._capture.recording.recording

    def begin(self) -> None:
        """Take requests from now on: the run's first step begins, or has ended."""
        with contextlib.suppress(Exception):  # a full disk: a run without captures
            if self._rank == 0:
                self._mailbox.open(OpenMark(**process_identity()._asdict(), poll_s=self._poll_s))
        start_own_thread("captures", self._watch)
        if self._late is not None and self._requesting is not None:
            from perfkit.record.on_demand.late_ranks import watch_lateness  # needs more of perfkit than the rest

            watch_lateness(self._recording.folder, self._late, self._requesting.offer, self._stopped, self._warn)
        self._begin_step()

    def between_steps(self) -> None:
        """Note the step that has ended, and tell the recording what a capture makes of the next one.

        That is `warmup` if the profiler is on, `cold` if a trace has just been written, and None without a capture.
        """
        if self._has_failed:
            self._recording.kind_in_progress = None
            return
        try:
            self._note_step(self._recording.steps, self._load_ns())
        except Exception as error:  # noqa: BLE001  the outermost boundary: beyond it is the program
            self._kind = "cold" if self._kind == "warmup" else None
            self._end_captures(error)
        self._recording.kind_in_progress = self._kind

    def _note_step(self, steps: int, load_ns: int | None) -> None:
        now_ns, paused_ns = time.perf_counter_ns(), self._pauses.total_ns
        if self._kind is None and (steps > self._plain_after or self._is_plain(steps - 1)):
            step_ns = max(0, now_ns - self._begin_ns - (paused_ns - self._paused_ns))
            # By position, and with one reading of the clock: this is done in every step.
            step = LightStep(steps - 1, now_ns + self._unix_ns, step_ns, load_ns)
            self._ring.add(step)
            if self._requesting is not None:
                self._requesting.step_ended(step)
        self._steps = steps
        self._begin_ns, self._paused_ns = now_ns, paused_ns
        if self._capture is not None or self._plan is not None or self._kind is not None:
            self._kind = self._follow_capture(steps)
            self._begin_step()

    def end(self) -> None:
        """Take no more requests; the steps of a capture that have ended are written."""
        self._close(failed=False)

    def fail(self, _error: BaseException, /) -> None:
        """Take no more requests; a capture waits for no device that may wait for a rank that is gone."""
        self._close(failed=True)

    def abandon(self, reason: str) -> None:
        """Stop recording, if this rank does, and leave why."""
        capture = self._capture
        if capture is not None:
            with contextlib.suppress(Exception):  # what is broken stays broken
                capture.recording.discard()
            with contextlib.suppress(Exception):  # beyond this is the program
                self._leave(capture.slot, problem=reason)

    def _close(self, *, failed: bool) -> None:
        with self._lock:  # a request that the other thread has seen by then is answered, a later one is not
            if self._stopped.is_set():
                return
            self._stopped.set()
            slot = self._slot
        try:
            self._end_capture(failed)
        except Exception as error:  # noqa: BLE001  the same as below
            self._fail(error, slot)
        try:
            if self._rank == 0 or (failed and has_died(self._mailbox.run_folder)):
                self._close_mailbox(failed)
            self._mailbox.remove_if_over()
        except Exception as error:  # noqa: BLE001  the outermost boundary: beyond it is the end of the program
            self._warn(error)

    def run_failed(self) -> None:
        """Take no more requests on any rank: the run has failed, and none can be relied upon to come to an end."""
        self._stopped.set()
        with contextlib.suppress(Exception):  # the failure is what counts
            self._close_mailbox(failed=True)
            self._mailbox.remove_if_over()

    def _close_mailbox(self, failed: bool) -> None:
        self._mailbox.close()
        for slot in self._mailbox.in_progress():
            if slot.plan() is None:
                slot.remove()
            elif failed:
                complete(slot, absent="the run failed")

    def _follow_capture(self, steps: int) -> StepKind | None:
        """Record the step that begins, if it belongs to the plan, or end a capture that is over.

        Returns what that makes of the step.
        """
        was_recording = self._capture is not None
        with self._lock:
            slot, plan = self._slot, self._plan
        try:
            if self._capture is not None:
                self._step(self._capture)
            elif slot is not None and plan is not None and steps >= plan.first_step - 1:
                self._begin(slot, plan, steps)
        except Exception as error:  # noqa: BLE001  the outermost boundary: beyond it is the program
            self._fail(error, slot)
        finally:
            self.writing = False
        if self._capture is not None:
            return "warmup"
        if was_recording:
            self._warm_from = steps + 1 + prepared_steps()
        return "cold" if steps < self._warm_from else None

    @property
    def recording_in_progress(self) -> Recording | None:
        """What records the step in progress, or warms up for it; None without a capture."""
        return None if self._capture is None else self._capture.recording

    def _begin_step(self) -> None:
        self._paused_ns = self._pauses.total_ns
        self._begin_ns = time.perf_counter_ns()

    def _is_plain(self, step: int) -> bool:
        """Whether the run's own schedule has left a step alone, and the one before."""
        schedule = self._schedule
        return step > 0 and (schedule is None or (schedule.state(step) == schedule.state(step - 1) == "plain"))

    # ---- the steps of a capture, in the thread that trains ----------------------------------------------------------

    def _begin(self, slot: Slot, plan: Plan, steps: int) -> None:
        if steps >= plan.first_step:
            problem = f"was at step {steps} when it learned that step {plan.first_step} is to be the first"
            self._leave(slot, problem=problem)
        elif autograd_profiler._is_profiler_enabled:
            self._leave(slot, problem=_OTHER_PROFILER)
        else:
            self._capture = RankCapture(self._recording, self._topology, slot, plan, self._ring.last())

    def _step(self, capture: RankCapture) -> None:
        if not capture.slot.exists():  # withdrawn
            self._capture = None
            self._forget()
            capture.recording.discard()
            return
        self.writing = True
        capture.recording.step()
        if capture.is_over:
            self._leave(capture.slot, capture.leave())

    def _end_capture(self, failed: bool) -> None:
        """End what is in progress because the run ends."""
        capture, slot = self._capture, self._slot
        if capture is None:
            if slot is not None:
                self._leave(slot, problem=f"the run ended after step {self._steps - 1}")
        elif failed and self._recording.world_size > 1 and not self._recording.on_host:
            self._leave(capture.slot, problem="the run failed")
        else:
            capture.recording.end()
            self._leave(capture.slot, capture.leave())

    def _fail(self, error: Exception, slot: Slot | None) -> None:
        """Give a capture up; if it was not withdrawn meanwhile, report why."""
        capture = self._capture
        if capture is not None:
            with contextlib.suppress(Exception):
                capture.recording.discard()
        self._capture = None
        self._forget()
        if slot is not None and slot.exists():
            self._warn(error)
            with contextlib.suppress(Exception):  # on a full disk the requester gets no answer, and reports that
                self._leave(slot, problem=one_line(error))

    def _leave(self, slot: Slot, done: Done | None = None, *, problem: str | None = None) -> None:
        """Leave what this rank has recorded, or why nothing; the last rank to do so finishes the capture."""
        self._capture = None
        self._forget()
        plan, request = slot.plan(), slot.request()
        if request is None or request.identifier != slot.identifier:  # withdrawn
            return
        done = done or Done(identifier=request.identifier, problem=problem)
        try:
            slot.write(f".rank{self._rank}.done.json", done)
        except StoreError:
            if slot.exists():
                raise
            return  # withdrawn, or finished without this rank
        finished = complete(slot)
        if finished is not None and plan is not None and request.condition is not None:
            last = plan.first_step + plan.steps - 1
            print_status(f"{finished}: steps {plan.first_step} to {last}, because {request.reason}")

    def _end_captures(self, error: Exception) -> None:
        """Take no more captures, and report it: an error occurred that no single capture caused."""
        self._has_failed = True
        with contextlib.suppress(Exception):
            print_warning(f"rank {self._rank}: no more captures in this run: {one_line(error)}")
        self.abandon(one_line(error))
        with contextlib.suppress(Exception):
            if self._slot is not None:
                self._leave(self._slot, problem=one_line(error))
        self.end()

    def _forget(self) -> None:
        with self._lock:
            self._slot = self._plan = None

    # ---- requests, in a separate thread -------------------------------------------------------------------------

    def _watch(self) -> None:
        while not self._stopped.wait(self._poll_s if self._slot is None or self._plan else self._open_poll_s):
            try:
                self._poll()
            except Exception as error:  # noqa: BLE001  the outermost boundary of this thread, which is inside a program
                self._warn(error)
                self._forget()

    def _poll(self) -> None:
        if self._slot is not None:
            self._poll_plan(self._slot)
        elif self._mailbox.has_changed() or self._others_in_progress:
            slots = self._mailbox.in_progress()
            self._others_in_progress = bool(slots)
            for slot in slots:
                self._answer_request(slot)

    def _answer_request(self, slot: Slot) -> None:
        """Answer a request, unless this rank has; as rank 0, remove what nobody waits for any more."""
        request = slot.request()
        if self._rank == 0 and _is_forgotten(slot, slot.names()):
            slot.remove()
        if request is None or request.identifier == self._handled:
            return
        self._handled = request.identifier
        if self._requesting is not None:
            self._requesting.note(request)
        if request.ranks is not None and self._rank not in request.ranks:
            return
        slot = slot.of(request)
        with self._lock:
            if self._stopped.is_set():
                return
            self._slot = slot
        try:
            slot.write(f".rank{self._rank}.at.json", self._answer())
        except Exception:
            self._forget()
            if slot.exists():  # otherwise it was withdrawn meanwhile
                raise

    def _answer(self) -> Answer:
        steps = self._steps
        answer = Answer(rank=self._rank, step=steps, step_ns=self._ring.usual_ns())
        if self._schedule is not None:
            if self._schedule.state(steps) != "plain" or self._schedule.ends_cycle(steps - 1):
                until = self._schedule.skip_first + (self._schedule.cycle(steps) + 1) * self._schedule.cycle_steps
                return replace(answer, refusal=f"records the steps of its schedule until step {until - 1}")
            return replace(answer, free_until=_free_until(self._schedule, steps))
        return replace(answer, refusal=_OTHER_PROFILER) if autograd_profiler._is_profiler_enabled else answer

    def _poll_plan(self, slot: Slot) -> None:
        if self._capture is not None:
            return
        names = slot.names()
        if not slot.exists():  # withdrawn
            self._forget()
        elif self._plan is None and ".plan.json" not in names:
            if _is_forgotten(slot, names):  # it is looked at seldom from now on; another request may follow it
                if self._rank == 0:
                    slot.remove()
                self._forget()
        elif self._plan is None:
            plan = slot.plan()
            if plan is None or self._rank not in plan.ranks:
                self._forget()  # it has answered too late
                return
            with self._lock:
                self._plan = plan

    def _warn(self, error: Exception) -> None:
        with contextlib.suppress(Exception):
            if (self._mailbox.run_folder / MANIFEST_NAME).exists():  # otherwise the whole folder is gone
                print_warning(f"rank {self._rank}: a capture failed: {one_line(error)}")


def _free_until(schedule: Schedule, steps: int) -> int | None:
    """Return the last step before the schedule's next warm-up, from a step that it leaves alone; None without any."""
    if steps >= schedule.steps:
        return None
    begins = max(schedule.skip_first, schedule.skip_first + schedule.cycle(steps) * schedule.cycle_steps)
    return begins + schedule.wait - 1


def _is_forgotten(slot: Slot, names: set[str]) -> bool:
    """Return whether the sender of a request has left before there was a plan, or before it read why there is none."""
    try:
        age_s = time.time() - slot.folder.stat().st_mtime
    except OSError:
        return False
    return age_s > _FORGOTTEN_S and (".plan.json" not in names or ".nothing.json" in names)
