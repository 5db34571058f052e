"""`perfkit run train.py`: runs a user's training script as `python train.py` would, and records it.

The script's exit code, output and signal handling stay as they are. torch is not imported before the script does.
"""

import atexit
import io
import os
import re
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.machinery import SourceFileLoader
from importlib.util import find_spec
from pathlib import Path
from types import CodeType, ModuleType, TracebackType
from typing import TYPE_CHECKING, Final, NoReturn

from perfkit.base.process import exit_on_sigint, raise_keyboard_interrupt
from perfkit.base.standard_streams import write_buffered
from perfkit.base.system_limits import count_cores
from perfkit.errors import StoreError
from perfkit.options.script import RANKS_FIELD, ScriptConfig
from perfkit.record.distributed.host_address import listen
from perfkit.record.distributed.torch_environment import enlarge_flight_recorder
from perfkit.record.endings import exit_cause
from perfkit.record.import_hook import run_after_import
from perfkit.record.lifecycle.launched_runs import FirstFailure, write_first_failure
from perfkit.record.lifecycle.local_launch import is_child, launch, refuse_inside_launcher
from perfkit.record.lifecycle.parent_watch import exit_with_parent
from perfkit.record.messages import one_line, print_status, print_warning
from perfkit.record.recording.side_profilers import check_recorders
from perfkit.record.script.child_processes import (
    follow_children,
    follow_reruns,
    make_settings,
    records_itself,
    take_note,
)
from perfkit.record.script.hooks.marked_loading import MarkedModules, compile_marked, has_matched, mark_annotations
from perfkit.record.script.module_run import ModuleName, prepare_module
from perfkit.record.script.rank_environment import launcher_rank, set_rank_environment

if TYPE_CHECKING:
    from perfkit.record.script.recorder import ScriptRecorder


_OWN: Final = tuple(
    str(Path(__file__).parents[1] / part)
    for part in ("script", "monitor", "autograd_engine.py", "recording/loader_fetches.py", "recording/loader_watch.py")
)
_COMPILER: Final = str(Path("torch", "_dynamo", "eval_frame.py"))
"""Its function around a hook that is not to be compiled."""


def remove_own_frames(error: BaseException) -> None:
    """Remove perfkit's frames from an error, and from those that led to it."""
    seen: set[int] = set()
    chain = [error]
    while chain:
        current = chain.pop()
        if id(current) in seen:
            continue
        seen.add(id(current))
        current.__traceback__ = _without_own(current.__traceback__)
        chain += [linked for linked in (current.__cause__, current.__context__) if linked is not None]


def _without_own(trace: TracebackType | None) -> TracebackType | None:
    frames: list[TracebackType] = []
    while trace is not None:
        frames.append(trace)
        trace = trace.tb_next
    kept = [frame for frame in frames if not _is_own(frame)]
    rest: TracebackType | None = None
    for frame in reversed(kept):
        frame.tb_next = rest
        rest = frame
    return rest


def _is_own(frame: TracebackType) -> bool:
    """Return whether a frame is perfkit's, or the compiler's function around a hook of perfkit's."""
    file, inner = frame.tb_frame.f_code.co_filename, frame.tb_next
    return file.startswith(_OWN) or (file.endswith(_COMPILER) and inner is not None and _is_own(inner))


_LOOPBACK: Final = "127.0.0.1"
_NO_MPI: Final = (
    "{script} imports mpi4py: ranks that -n starts do not see each other through MPI; "
    "for that, use `mpiexec -n N perfkit run {script}`"
)
_NOTHING_MARKED: Final = (
    "--data-marker {marker!r} matches no function of {script} and its folder, and no annotation that it made"
)


def launch_script(arguments: Sequence[str], ranks: int) -> None:
    """Run `perfkit ARGUMENTS` as `ranks` processes on this host, in the environment that torchrun would set.

    Raises:
        UsageError: A launcher has already started several ranks.
        RunError: A rank was killed by a signal.
        SystemExit: A rank failed, with its exit code.
    """
    refuse_inside_launcher()
    os.environ.setdefault("OMP_NUM_THREADS", str(max(1, count_cores() // ranks)))
    with _store():
        launch(arguments, ranks, name_failed=True)


@contextmanager
def _store() -> Iterator[None]:
    """Host the store of the ranks' process group on a free port, as torchrun does; they find it through `env://`."""
    if find_spec("torch") is None:
        yield
        return
    with exit_on_sigint():
        from torch.distributed import TCPStore  # type: ignore[attr-defined]
    listening = listen(_LOOPBACK, 0)
    store = TCPStore(
        _LOOPBACK,
        listening.getsockname()[1] if listening else 0,
        is_master=True,
        wait_for_workers=False,
        master_listen_fd=listening.detach() if listening else None,
    )
    os.environ |= {
        "MASTER_ADDR": _LOOPBACK,
        "MASTER_PORT": str(store.port),
        "TORCHELASTIC_USE_AGENT_STORE": "True",
        "TORCHELASTIC_RESTART_COUNT": "0",
    }
    yield
    del store


def run_script(script: str, arguments: Sequence[str], config: ScriptConfig, options: Sequence[str]) -> NoReturn:
    """Run a script as `python SCRIPT ARGUMENTS` would, or a `ModuleName` as `python -m` would, and record it.

    Args:
        script: Its path, or a `ModuleName`.
        options: The same as arguments of `perfkit`, for ranks that the script starts by running itself again.

    Raises:
        LaunchEnvironmentError: pyinstrument is not installed.
        StoreError: The trace folder is not writable.
        SystemExit: With the script's exit code.
    """
    check_recorders(config)
    _check_writable(Path(config.trace_dir))
    exit_with_parent()
    if config.profile or config.capture_rules.conditions:
        enlarge_flight_recorder()
    set_rank_environment(Path(config.trace_dir), config.timeout_ns)
    raise_keyboard_interrupt()
    if is_child() and launcher_rank().rank == 0 and launcher_rank().world_size > 1:
        run_after_import("mpi4py", lambda: print_warning(_NO_MPI.format(script=script)))
    if launcher_rank().world_size == 1 and not is_child():
        follow_reruns(script, options, config.trace_dir)
    with _ScriptContext(script, arguments, config):
        ranks = str(launcher_rank().world_size)
        filled = [one.replace(RANKS_FIELD, ranks) for one in arguments] if config.fill_ranks else arguments
        _execute(script, filled, re.compile(config.data_marker) if config.data_marker else None)
    raise SystemExit


def _check_writable(folder: Path) -> None:
    """Check that traces can be written, before the script runs for hours."""
    try:
        existing = Path(os.path.abspath(folder))
        while not existing.exists():
            existing = existing.parent
        with tempfile.TemporaryFile(dir=existing):
            pass
    except (OSError, RuntimeError) as error:  # RuntimeError: links that lead to each other
        reason = getattr(error, "strerror", None) or str(error)
        raise StoreError(f"cannot write into {folder}: {reason}: choose another --trace-dir") from error


def _execute(script: str, arguments: Sequence[str], data_marker: "re.Pattern[str] | None") -> None:
    """Run the script as the interpreter does: it is `__main__` until the process ends.

    `runpy` would remove `__main__` after the script's last line, before its threads and `atexit` functions have ended.
    """
    main = ModuleType("__main__")
    vars(main)["__builtins__"] = sys.modules["builtins"]
    if "__annotations__" in vars(sys.modules["__main__"]):  # not from Python 3.14 on
        vars(main)["__annotations__"] = {}
    sys.modules["__main__"] = main
    # The module of the classes that spawned children send; multiprocessing, imported before, has made it our own.
    sys.modules["__mp_main__"] = main
    sys.argv = [script, *arguments]
    if data_marker is not None:
        # The script is marked when it is compiled.
        folder = Path.cwd() if isinstance(script, ModuleName) else Path(script).resolve().parent
        sys.meta_path.insert(0, MarkedModules(folder.resolve(), data_marker))
        run_after_import("torch", lambda: mark_annotations(data_marker))
    if isinstance(script, ModuleName):
        code = prepare_module(script, main)
    else:
        code = _prepare_script(script, main, data_marker)
    exec(code, vars(main))  # noqa: S102  # running the user's code is the purpose


def _prepare_script(script: str, main: ModuleType, data_marker: "re.Pattern[str] | None") -> CodeType:
    path = Path(script).absolute()
    main.__file__ = str(path)
    vars(main)["__cached__"] = None
    main.__loader__ = SourceFileLoader("__main__", str(path))
    if not sys.flags.safe_path:
        sys.path[0] = str(path.resolve().parent)
    with io.open_code(str(path)) as stream:
        source = stream.read()
    if data_marker is not None:
        return compile_marked(source, str(path), data_marker)
    return compile(source, str(path), "exec", dont_inherit=True)


class _ScriptContext:
    """Context manager around the script: finishes the recording, then ends the process as the script has ended."""

    def __init__(self, script: str, arguments: Sequence[str], config: ScriptConfig) -> None:
        self._script = f"-m {script}" if isinstance(script, ModuleName) else script
        self._arguments = arguments
        self._config = config
        self._pid = os.getpid()
        self._recorder: ScriptRecorder | None = None
        self._begin_ns = 0
        self._excepthook = sys.excepthook
        self._ending = _Ending()
        self._trace_dir = Path(config.trace_dir).resolve()  # now: the script may change the working directory
        self._children = make_settings(self._script, arguments, config, self._trace_dir)

    def __enter__(self) -> None:
        self._begin_ns = time.perf_counter_ns()
        run_after_import("torch", self._attach)
        follow_children(self._children, lambda: not self._records)

    @property
    def _records(self) -> bool:
        return self._recorder is not None and self._recorder.has_begun

    def _attach(self) -> None:
        if records_itself():
            return
        from perfkit.record.script.recorder import ScriptRecorder

        self._recorder = ScriptRecorder(self._script, self._arguments, self._config, self._begin_ns, self._trace_dir)
        self._recorder.attach()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        raised = error if kind is not SystemExit else None
        own_hook = sys.excepthook is not self._excepthook
        if raised is not None:
            remove_own_frames(raised)
            if not own_hook:
                sys.excepthook(type(raised), raised, raised.__traceback__)
        try:
            if kind in (None, SystemExit) and os.getpid() == self._pid and _other_threads_run():
                atexit.register(self._finish_last, error)  # the interpreter waits for them first, and they may train
            else:
                self._finish(error)
        finally:  # a second Ctrl+C, too, must not hide why the script has ended
            if raised is not None and own_hook:  # last: it may end the process, by `MPI_Abort` for example
                sys.excepthook(type(raised), raised, raised.__traceback__)
        if self._recorder is not None and self._recorder.is_aborted_at_exit:
            self._ending.exit_code = _exit_code(error)
        if error is None or isinstance(error, SystemExit):
            if self._recorder is not None and self._recorder.missed:
                raise SystemExit(1)  # --step-on matched nothing; an exit code of the script takes precedence
            return
        if isinstance(error, KeyboardInterrupt):
            self._ending.by_sigint = True
        raise SystemExit(1)

    def _finish_last(self, error: BaseException | None) -> None:
        self._finish(error)
        if self._recorder is not None and self._recorder.missed:
            self._ending.exit_code = 1  # which was known only once the script's threads had ended

    def _finish(self, error: BaseException | None) -> None:
        ended_well = error is None or (isinstance(error, SystemExit) and error.code in (None, 0))
        if error is not None and not ended_well:
            rank = launcher_rank().rank
            write_first_failure(FirstFailure(rank, f"rank {rank}: {one_line(exit_cause(error))}"), first=False)
        if os.getpid() == self._pid and take_note(self._children) and not self._records:
            return  # the children's own lines report what was recorded
        if self._recorder is not None:
            if ended_well and self._config.data_marker and not has_matched() and launcher_rank().rank == 0:
                print_warning(_NOTHING_MARKED.format(marker=self._config.data_marker, script=self._script))
            self._recorder.end(None if ended_well else error)
        elif ended_well and launcher_rank().rank == 0:
            print_status(f"{self._script} has not imported torch: nothing was recorded")


def _other_threads_run() -> bool:
    """Return whether there are threads that the interpreter waits for before it ends."""
    own = threading.current_thread()
    return any(not thread.daemon and thread is not own for thread in threading.enumerate())


def _exit_code(error: BaseException | None) -> int:
    """Return the exit code of a script that has ended with `error`, as the interpreter would."""
    if isinstance(error, SystemExit):
        return error.code & 0xFF if isinstance(error.code, int) else int(error.code is not None)
    return int(error is not None)


class _Ending:
    """Ends the process, after all other `atexit` functions, in a way that these cannot."""

    def __init__(self) -> None:
        self.by_sigint = False
        self.exit_code: int | None = None
        """With which to end the process at once; None leaves that to the interpreter."""
        atexit.register(self._end)  # registered before any of the script's, so called last

    def _end(self) -> None:
        if self.by_sigint:
            write_buffered()
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            os.kill(os.getpid(), signal.SIGINT)
        if self.exit_code is not None:
            write_buffered()
            os._exit(self.exit_code)
