"""Records the ranks that a script starts itself: with `multiprocessing`, or by running itself again with `subprocess`.

The rank of a child is that of its process group; without one it is a run of its own. By `mp.spawn`, or as a forked
process, it gets its own recorder once it imports torch: a forked child inherits the hook, a spawned one gets it with
the data that prepares its interpreter. One that runs the script again, as Lightning's launcher does, runs under
perfkit, with the options of this process.
"""

import multiprocessing.process
import multiprocessing.spawn
import multiprocessing.util
import os
import pickle
import secrets
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

from perfkit.base.atomic_write import temporary_prefix
from perfkit.base.process import child_python
from perfkit.errors import RunError
from perfkit.options.script import ScriptConfig
from perfkit.record.import_hook import run_after_import
from perfkit.record.script.module_run import ModuleName

if TYPE_CHECKING:
    from perfkit.record.script.recorder import ScriptRecorder


_OTHER_PROGRAM: Final = ("executable", "shell", "preexec_fn")
"""Options of `subprocess.Popen` with which a command may not be what it looks like."""


def follow_reruns(script: str, options: Sequence[str], trace_dir: str) -> None:
    """Run this script under perfkit wherever this process starts it again."""
    # The script may change the working directory and the search path.
    path = Path(script).absolute()
    if not isinstance(script, ModuleName):
        options = [str(path) if word == script else word for word in options]
    folder = ["--trace-dir", str(Path(trace_dir).absolute())]
    under_perfkit = [*child_python("perfkit.__main__", "start"), *options, *folder, "--"]
    start = subprocess.Popen.__init__

    def started(process: Any, args: Any, *positional: Any, **named: Any) -> None:
        rest = None
        if not positional and not any(named.get(name) for name in _OTHER_PROGRAM) and _finds_perfkit(named.get("env")):
            rest = _arguments_of_script(args, script, path, named.get("cwd"))
        start(process, args if rest is None else [*under_perfkit, *rest], *positional, **named)
        process.args = args

    subprocess.Popen.__init__ = started  # type: ignore[assignment, method-assign]


def _finds_perfkit(environment: Any) -> bool:
    """Return whether a child with this environment imports what this process imports."""
    if environment is None:
        return True
    return all(environment.get(name) == os.environ.get(name) for name in ("PYTHONPATH", "PYTHONHOME"))


def _arguments_of_script(command: Any, script: str, path: Path, folder: Any) -> list[str] | None:
    """Return the script's arguments if a command, in a folder, runs it with this interpreter; else None."""
    if not isinstance(command, list | tuple) or not all(isinstance(word, str | os.PathLike) for word in command):
        return None
    words = [os.fspath(word) for word in command]
    if words[:1] != [sys.executable] or not all(isinstance(word, str) for word in words):
        return None
    if isinstance(script, ModuleName):
        return words[3:] if words[1:3] == ["-m", str(script)] else None
    return words[2:] if len(words) > 1 and _is_at(path, Path(os.fsdecode(folder or ""), words[1])) else None


def _is_at(path: Path, name: Path) -> bool:
    try:
        return name.absolute() == path
    except OSError:  # the working directory has been removed
        return False


_RECORD_SPAWNED: Final = """
try:
    from perfkit.record.script.child_processes import record_spawned
except ImportError:
    pass
else:
    record_spawned(settings)
"""
"""Run in a spawned child before its `sys.path` is set: the child must also start if perfkit is not found."""
_own_recordings: Final[set[int]] = set()
"""Pids of this process and those that it was forked from, as far as each has its own recording."""
_FIRST: Final = 1_000_000
"""Priority of what runs when a child begins to end."""


class ChildSettings(Struct, frozen=True):
    """What a child needs to record itself."""

    script: str
    arguments: tuple[str, ...]
    config: ScriptConfig
    trace_dir: str
    """Absolute: a child may have another working directory."""
    note: str
    """Path of a file that the child creates if it has recorded anything."""


def make_settings(script: str, arguments: Sequence[str], config: ScriptConfig, trace_dir: Path) -> ChildSettings:
    note = Path(tempfile.gettempdir()) / f"{temporary_prefix('perfkit-children')}{secrets.token_hex(8)}"
    return ChildSettings(script, tuple(arguments), config, str(trace_dir), str(note))


def take_note(settings: ChildSettings) -> bool:
    """Return whether a child has recorded anything, and remove its note."""
    note = Path(settings.note)
    recorded = note.exists()
    note.unlink(missing_ok=True)
    return recorded


def follow_children(settings: ChildSettings, is_free: Callable[[], bool] = lambda: True) -> None:
    """Record the children that this process starts from now on.

    Args:
        is_free: Whether this process records nothing itself: a child that is forked while the profiler runs has half of
            it, and is left alone.
    """
    prepare = multiprocessing.spawn.get_preparation_data
    multiprocessing.spawn.get_preparation_data = lambda name: {**prepare(name), "perfkit": _SpawnedSettings(settings)}
    bootstrap = multiprocessing.process.BaseProcess._bootstrap  # type: ignore[attr-defined]

    def recorded_bootstrap(process: Any, *args: Any, **kwargs: Any) -> int:
        if not is_free():
            return int(bootstrap(process, *args, **kwargs))
        child = _Child(settings)
        code = int(bootstrap(process, *args, **kwargs))
        child.end(code)
        return code

    multiprocessing.process.BaseProcess._bootstrap = recorded_bootstrap  # type: ignore[attr-defined]


def records_itself() -> bool:
    """Return whether this process is a child with its own recording: the hooks of its parent's are not for it."""
    return os.getpid() in _own_recordings


def record_spawned(settings: bytes) -> None:
    """Record this process, a spawned child, and its own children."""
    follow_children(pickle.loads(settings))  # noqa: S301  # from the parent, as everything in this pickle


class _SpawnedSettings:
    """Is part of the data that prepares a spawned child, and calls `record_spawned` when that is unpickled."""

    def __init__(self, settings: ChildSettings) -> None:
        self._settings = pickle.dumps(settings)

    def __reduce__(self) -> tuple[Any, ...]:
        return exec, (_RECORD_SPAWNED, {"settings": self._settings})


class _Child:
    """The recording of this process, which is a child."""

    def __init__(self, settings: ChildSettings) -> None:
        self._settings = settings
        self._pid = os.getpid()
        _own_recordings.add(self._pid)
        self._begin_ns = time.perf_counter_ns()
        self._recorder: ScriptRecorder | None = None
        self._error: BaseException | None = None
        self._follow_end()
        multiprocessing.util.register_after_fork(self, _Child._follow_end)  # which removes what was registered before
        run_after_import("torch", self._attach)

    def _follow_end(self) -> None:
        """Note the error that ends the process once it does; a call around its function would be in tracebacks."""
        multiprocessing.util.Finalize(None, self._note_error, exitpriority=_FIRST)

    def _note_error(self) -> None:
        error = sys.exception()
        # `mp.spawn` prints an error itself, and ends the process with an exit code.
        self._error = error.__context__ if isinstance(error, SystemExit) else error

    def _attach(self) -> None:
        if os.getpid() != self._pid:  # a process that this one has forked imports torch
            return
        from perfkit.record.script.recorder import ScriptRecorder

        settings = self._settings
        self._recorder = ScriptRecorder(
            settings.script, settings.arguments, settings.config, self._begin_ns, Path(settings.trace_dir)
        )
        self._recorder.attach()

    def end(self, code: int) -> None:
        """Finish the recording of a process that ends with `code`."""
        recorder = self._recorder
        if recorder is not None and recorder.has_begun and os.getpid() == self._pid:
            with suppress(OSError):  # a full disk is no reason to fail in the script's process
                Path(self._settings.note).touch()
            unknown = RunError(f"the process that the script started ended with exit code {code}")
            recorder.end((self._error or unknown) if code else None)
