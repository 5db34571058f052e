"""Records the ranks that a script starts by running itself again with `subprocess`, as Lightning's launcher does.

Each of them runs under perfkit, with the options of this process. Ranks of one process group share a run; a process
without one is a separate run.
"""

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from perfkit.base.process import child_python
from perfkit.record.script.module_run import ModuleName

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
