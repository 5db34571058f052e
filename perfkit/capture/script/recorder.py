"""Records a training script that knows nothing of perfkit: torch itself says when an optimizer has stepped.

A step lasts from the end of one step of the optimizer to the end of the next. What comes before the first end is step
0, timed from the start of the script and `cold`; the schedule counts from step 1. Once the schedule is over, a number
of plain steps are timed, and then the script is left alone.

Whatever goes wrong here is said in one line, and the script goes on without being recorded.
"""

import functools
import os
import socket
import threading
import time
import weakref
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import msgspec
import torch
import torch.distributed as dist
from msgspec import Struct
from torch.optim import Optimizer
from torch.optim.optimizer import register_optimizer_step_post_hook

from perfkit.capture.distributed.launcher_env import RankInfo
from perfkit.capture.distributed.topology import Topology, name_device, own_cores
from perfkit.capture.lifecycle.failure_guard import TerminatedError, record_failure
from perfkit.capture.lifecycle.first_failure import FirstFailure, write_first_failure
from perfkit.capture.lifecycle.local_launch import is_child
from perfkit.capture.messages import exit_cause, one_line, print_status
from perfkit.capture.recording.manifest_writer import RunDescription, StepMeasurements, create_run, rank_record, utc_now
from perfkit.capture.recording.session import ProfilerOptions, Session
from perfkit.capture.script.config import ScriptConfig
from perfkit.capture.script.coordination import ScriptRankGroup, open_script_group
from perfkit.capture.script.rank_environment import launcher_rank
from perfkit.capture.script.sigterm_hook import SigtermHook
from perfkit.errors import PerfkitError, RunError
from perfkit.schema.manifest import RankRecord, StepKind, World
from perfkit.storage.run_folder import FAILURE_NAME, MANIFEST_NAME, list_files, read_manifest, write_manifest
from perfkit.util.atomic_write import atomic_write

TIMED_AFTER: Final = 100
"""Steps that are timed after the schedule: enough for a median, and an end to what is kept in memory."""

UNKNOWN: Final = {
    "batch_size": "the script does not say",
    "loss": "the script does not say",
    "load_ns": "only the trace shows the loading of data",
    "parameters": "the model is the script's own",
}
"""Fields of the manifest that stay empty, and why."""


_CLOSING_S: Final = 5.0
"""How long a rank waits for another one that writes the manifest."""

EXIT_RECORD_SUFFIX: Final = ".rank{}.left"
"""Name of what each rank leaves in the run's folder, until all have."""


class _RankExitRecord(Struct, frozen=True, kw_only=True):
    """What a rank leaves in the run's folder when its script has ended."""

    record: RankRecord
    kinds: list[StepKind]


class ScriptRecorder:
    """Records the steps of one process.

    Args:
        script: As it was given.
        arguments: Those of the script.
        config: Options of the recording.
        begin_ns: When the script began (`time.perf_counter_ns`).
    """

    def __init__(self, script: str, arguments: Sequence[str], config: ScriptConfig, begin_ns: int) -> None:
        self._script = script
        self._arguments = list(arguments)
        self._config = config
        self._begin_ns = begin_ns
        self._trace_dir = Path(config.trace_dir).resolve()
        plan = config.plan
        self._schedule = msgspec.structs.replace(plan, skip_first=plan.skip_first + 1)
        self._pid = os.getpid()
        self._thread: int | None = None
        self._counted: weakref.ref[Optimizer] | None = None
        self._seen: Counter[str] = Counter()
        self._steps = 0
        self._first_ns = 0
        self._busy = False
        self._over = False
        self._told = False
        self.missed = False
        """Whether the script has ended well, and the optimizer that was asked for has never stepped."""
        self._ranks: ScriptRankGroup | None = None
        self._session: Session | None = None
        self._topology: Topology | None = None
        self._measured: StepMeasurements | None = None

    def attach(self) -> None:
        """Begin to listen to torch."""
        register_optimizer_step_post_hook(_outside_compilation(self._stepped))
        _watch_profilers(self._profiled_elsewhere)

    def end(self, error: BaseException | None) -> None:
        """Write what is known once the script has ended, or is about to: `error` is how, None if well."""
        if os.getpid() != self._pid:
            return
        if self._session is None or self._ranks is None or self._topology is None:
            self._over = True
            self._say_why_nothing(error)
            return
        if self._busy:  # a signal has come while a trace was being written
            record_failure(self._session.folder, self._ranks.rank, error or RunError("ended"), None)
            return
        with self._harmless():
            self._stop(error)
            self._leave_record(self._session, self._ranks, self._topology, error)

    def _stepped(self, optimizer: Optimizer, _args: Any, _kwargs: Any) -> None:
        if os.getpid() != self._pid:  # a forked child trains something of its own
            return
        self._seen[type(optimizer).__name__] += 1
        if not self._counts(optimizer):
            return
        self._steps += 1
        if self._over:
            return
        with self._harmless():
            if self._session is None:
                self._session = self._open(optimizer)
            self._session.step()
            if self._session.steps > self._schedule.steps + TIMED_AFTER:
                self._stop(None)

    def _counts(self, optimizer: Optimizer) -> bool:
        """Say whether the steps of `optimizer` are those of the script: the first that steps, while it lives."""
        counted = self._counted() if self._counted else None
        if counted is None:
            if self._config.step_on not in (None, type(optimizer).__name__):
                return False
            self._counted = weakref.ref(optimizer)
            self._thread = threading.get_ident()
            return True
        return counted is optimizer and self._thread == threading.get_ident()

    def _open(self, optimizer: Optimizer) -> Session:
        self._first_ns = time.perf_counter_ns()
        timeout = timedelta(microseconds=self._config.timeout_ns / 1000)
        ranks = open_script_group(self._trace_dir, self._config.workload, 2 * self._schedule.repeat, timeout)
        device = _device_of(optimizer)
        topology = _script_topology(ranks.info, device)
        config = {"script": self._script, "arguments": self._arguments, "optimizer": type(optimizer).__name__}
        description = RunDescription(
            workload=self._config.workload,
            source=self._config.source,
            config=config | msgspec.to_builtins(self._config),
            unknown=UNKNOWN,
        )
        folder = ranks.agree_on_folder(
            lambda: create_run(ranks.world_size, topology, description, self._trace_dir, self._config.name)
        )
        self._ranks, self._topology = ranks, topology
        session = Session(
            ranks,
            device,
            folder,
            self._schedule,
            options=ProfilerOptions(
                **{name: getattr(self._config, name) for name in ProfilerOptions.__struct_fields__}
            ),
            workload=description.workload,
            source=description.source,
        )
        SigtermHook(self._terminated, self._terminated_while_stuck).install()
        session.start()
        return session

    def _terminated(self) -> None:
        self.end(TerminatedError("ended by SIGTERM"))

    def _terminated_while_stuck(self) -> None:
        """Say in the manifest what can be said without the main thread, which does not come back."""
        if self._session is not None and self._ranks is not None:
            record_failure(self._session.folder, self._ranks.rank, TerminatedError("ended by SIGTERM, stuck"), None)

    def _stop(self, error: BaseException | None) -> None:
        """Stop recording and timing; the run's folder is finished when the script ends."""
        if self._over or self._session is None or self._ranks is None:
            return
        self._over = True
        self._ranks.stop_waiting()
        # Stopping waits for the device, which may wait for a rank that is gone.
        patient = error is None or self._ranks.world_size == 1 or self._session_on_cpu
        if patient:
            self._session.finish()
        self._measured = self._trim(self._session.measurements(wait=patient))

    @property
    def _session_on_cpu(self) -> bool:
        return self._topology is not None and self._topology.device == "cpu"

    def _trim(self, measured: StepMeasurements) -> StepMeasurements:
        """Leave out what cannot be known of a script, and time step 0 from the script's start."""
        first = [self._first_ns - self._begin_ns] if measured.wall_ns else []
        return msgspec.structs.replace(measured, wall_ns=first + measured.wall_ns[1:], load_ns=[], loss=[])

    def _leave_record(
        self, session: Session, ranks: ScriptRankGroup, topology: Topology, error: BaseException | None
    ) -> None:
        measured = self._measured or self._trim(session.measurements(wait=False))
        record = rank_record(ranks.rank, topology, measured)
        if error is not None:
            known = {"ranks": [record], "step_kinds": measured.kinds}
            if record_failure(session.folder, ranks.rank, exit_cause(error), lambda: known):
                self._say_failure(session.folder, ranks, error)
            for path in session.folder.glob(EXIT_RECORD_SUFFIX.format("*")):
                path.unlink(missing_ok=True)
            return
        if (session.folder / FAILURE_NAME).exists():
            return
        leaving = _RankExitRecord(record=record, kinds=measured.kinds)
        with atomic_write(session.folder / EXIT_RECORD_SUFFIX.format(ranks.rank)) as temporary:
            temporary.write_bytes(msgspec.json.encode(leaving))
        if _complete(session.folder, ranks):
            ranks.clear()
            self._say_end(session.folder, f"{self._steps} steps")

    def _say_failure(self, folder: Path, ranks: ScriptRankGroup, error: BaseException) -> None:
        # Those that were told to end were all told: it is no fault of this one.
        if ranks.world_size == 1 or isinstance(error, (KeyboardInterrupt, TerminatedError)):
            self._say_end(folder, f"failed after {self._steps} steps")
            return
        line = f"rank {ranks.rank}: {one_line(exit_cause(error))} ({folder / MANIFEST_NAME})"
        if any(file.kind == "trace" for file in list_files(folder)):
            line += f"; what was recorded before: perfkit analyze {folder}"
        if is_child():  # the parent says it, after what the other ranks have to say
            write_first_failure(FirstFailure(ranks.rank, line), first=True)
        else:
            print_status(f"error: {line}")

    def _say_end(self, folder: Path, what: str) -> None:
        traces = [file for file in list_files(folder) if file.kind == "trace"]
        if traces:
            print_status(f"{self._script}: {what}; to see where the time went: perfkit analyze {folder}")
        elif not self._told:
            needed = self._schedule.skip_first + self._schedule.cycle_steps
            print_status(
                f"{self._script}: {what}, and no trace: the first one takes {needed} steps with "
                f"--schedule {self._config.schedule} ({folder})"
            )

    def _say_why_nothing(self, error: BaseException | None) -> None:
        self.missed = error is None and bool(self._seen) and self._config.step_on is not None and not self._told
        if self._told or launcher_rank().rank > 0 or error is not None:
            return
        if not self._seen:
            print_status(
                f"{self._script}: no optimizer of torch has stepped in this process: nothing was recorded "
                "(processes that the script starts are not recorded: start its ranks with mpiexec, torchrun or -n)"
            )
        elif self._config.step_on is not None:
            seen = ", ".join(f"{name} ({count} steps)" for name, count in self._seen.items())
            print_status(
                f"error: --step-on {self._config.step_on}: no such optimizer has stepped; those that have: {seen}"
            )

    def _profiled_elsewhere(self) -> None:
        if self._busy or self._over or os.getpid() != self._pid:
            return
        if self._session is None:
            self._over = self._told = True
        else:
            self._told = True
            with self._harmless():
                self._session.discard()
                self._stop(None)
        if launcher_rank().rank == 0:
            print_status(f"{self._script} profiles itself with torch.profiler: perfkit does not record it beside that")

    @contextmanager
    def _harmless(self) -> Iterator[None]:
        """Let nothing that goes wrong in perfkit reach the script."""
        self._busy = True
        try:
            yield
        except (PerfkitError, RuntimeError, OSError) as error:
            self._over = self._told = True
            print_status(f"error: {one_line(error)}: {self._script} is not recorded any further")
            self._give_up(error)
        finally:
            self._busy = False

    def _give_up(self, error: BaseException) -> None:
        if self._ranks is None or self._session is None:
            return
        session, ranks = self._session, self._ranks
        try:
            ranks.stop_waiting()
            session.discard()
        except RuntimeError:  # what is broken stays broken
            pass
        record_failure(session.folder, ranks.rank, error, None)


def _outside_compilation(hook: Callable[..., None]) -> Callable[..., None]:
    """Return `hook` as torch.compile leaves it alone, in the words of torch.compiler.disable.

    That would import the compiler into every script.
    """

    def stepped(*args: Any) -> None:
        hook(*args)

    stepped._torchdynamo_disable = True  # type: ignore[attr-defined]
    return stepped


def _watch_profilers(notice: Callable[[], None]) -> None:
    """Call `notice` before a profiler is made: two cannot run at once, and the script's comes first."""
    for kind in (torch.profiler.profile, torch.autograd.profiler.profile):
        _call_before(kind, notice)


def _call_before(kind: Any, notice: Callable[[], None]) -> None:
    make = kind.__init__

    @functools.wraps(make)
    def made(self: Any, *args: Any, **kwargs: Any) -> None:
        if kwargs.get("enabled", True) and args[:1] != (False,):
            notice()
        make(self, *args, **kwargs)

    kind.__init__ = made


def _device_of(optimizer: Optimizer) -> torch.device:
    parameters = (parameter for group in optimizer.param_groups for parameter in group["params"])
    found = next((parameter.device for parameter in parameters), torch.device("cpu"))
    return found if isinstance(found, torch.device) else torch.device("cpu")


def _script_topology(info: RankInfo, device: torch.device) -> Topology:
    sizes = [info.local_world_size] * (info.world_size // info.local_world_size)
    return Topology(
        device=str(device),
        device_name=name_device(device),
        backend=dist.get_backend() if dist.is_available() and dist.is_initialized() else None,
        host=socket.gethostname(),
        threads=torch.get_num_threads(),
        # Ranks that are bound to cores do not know of the others'.
        node_cores=os.cpu_count() if len(own_cores()) == os.cpu_count() else None,
        local_rank=info.local_rank,
        node_rank=info.node_rank or 0,
        world=World(world_size=info.world_size, nodes=len(sizes), launcher=info.launcher, local_world_sizes=sizes),
    )


def _complete(folder: Path, ranks: ScriptRankGroup) -> bool:
    """Write the manifest as "completed" with the ranks that have ended by now; say whether this rank is the last.

    Another rank may never step, and so never come here: the manifest must not wait for it.
    """
    closing = folder / ".closing"
    if not _claim(closing):
        return False
    try:
        left = sorted(folder.glob(EXIT_RECORD_SUFFIX.format("*")))
        if not left:  # a rank that came at the same time was the last
            return False
        leavings = [msgspec.json.decode(path.read_bytes(), type=_RankExitRecord) for path in left]
        _write_completed(folder, sorted(leavings, key=lambda leaving: leaving.record.rank), ranks)
        if len(left) < ranks.world_size:
            return False
        for path in left:
            path.unlink()
    finally:
        closing.unlink()
    return True


def _claim(lock: Path) -> bool:
    """Create `lock` as soon as nobody else holds it; say whether that was possible in time."""
    deadline = time.monotonic() + _CLOSING_S
    while time.monotonic() < deadline:
        try:
            lock.touch(exist_ok=False)
        except FileExistsError:
            time.sleep(0.01)
        else:
            return True
    return False


def _write_completed(folder: Path, leavings: Sequence[_RankExitRecord], ranks: ScriptRankGroup) -> None:
    before = read_manifest(folder)
    records, world, unknown = [leaving.record for leaving in leavings], before.world, dict(UNKNOWN)
    if len(records) == ranks.world_size:
        records, world = place_records(records, ranks.info.launcher)
    else:
        unknown["ranks"] = "some ranks had not ended, or never made a step, when the last of these had ended"
    manifest = msgspec.structs.replace(
        before,
        unknown=unknown,
        state="completed",
        finished_at=utc_now().isoformat(timespec="seconds"),
        world=world,
        step_kinds=min((leaving.kinds for leaving in leavings), key=len),
        ranks=records,
        files=list_files(folder),
    )
    write_manifest(folder, manifest)


def place_records(records: Sequence[RankRecord], launcher: str) -> tuple[list[RankRecord], World]:
    """Return the records with their places on hosts, which only all of them together show."""
    hosts = list(dict.fromkeys(record.host for record in records))
    by_host = {host: [record.rank for record in records if record.host == host] for host in hosts}
    placed = [
        msgspec.structs.replace(
            record, local_rank=by_host[record.host].index(record.rank), node_rank=hosts.index(record.host)
        )
        for record in records
    ]
    sizes = [len(by_host[host]) for host in hosts]
    return placed, World(world_size=len(records), nodes=len(hosts), launcher=launcher, local_world_sizes=sizes)
