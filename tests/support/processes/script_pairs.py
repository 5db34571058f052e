"""Runs a script by itself and under `perfkit run`, in processes forked after torch has been imported.

Importing torch and its compiler takes many seconds, which every process of a matrix would spend again: here one process
imports them, and forks once per run. `python -m tests.support.processes.script_pairs` reads runs from stdin and writes
results to stdout, as JSON.
"""

import gc
import json
import os
import runpy
import subprocess
import sys
import time
import traceback
from pathlib import Path
from typing import Any, NamedTuple

from tests.support.processes.launching import LIMIT_S, ROOT, environment


class ScriptRun(NamedTuple):
    """How a script has ended."""

    code: int
    output: str
    errors: str
    wall_s: float
    cpu_s: float


def run_forked(runs: list[tuple[list[str], Path]]) -> list[ScriptRun]:
    """Return how each run has ended, in order.

    Args:
        runs: Arguments of `python`, or of `perfkit` if they begin with "run"; and a new folder to run in.
    """
    done = subprocess.run(
        [sys.executable, "-m", "tests.support.processes.script_pairs"],
        input=json.dumps([(arguments, str(folder)) for arguments, folder in runs]),
        env=environment(),
        capture_output=True,
        text=True,
        timeout=2 * LIMIT_S,
        check=False,
        cwd=ROOT,
    )
    assert done.returncode == 0, done.stderr
    return [ScriptRun(*row) for row in json.loads(done.stdout)]


def _fork(arguments: list[str], folder: Path) -> ScriptRun:
    folder.mkdir(parents=True)
    begin = time.monotonic()
    child = os.fork()
    if child == 0:
        for number, name in ((1, "output"), (2, "errors")):
            os.dup2(os.open(folder / name, os.O_CREAT | os.O_WRONLY), number)
        os.chdir(folder)
        _end_as(arguments)
    _, status, usage = os.wait4(child, 0)
    wall_s, cpu_s = time.monotonic() - begin, usage.ru_utime + usage.ru_stime
    output, errors = ((folder / name).read_text() for name in ("output", "errors"))
    return ScriptRun(os.waitstatus_to_exitcode(status), output, errors, wall_s, cpu_s)


def _end_as(arguments: list[str]) -> None:
    """Run the arguments and end this process with their exit code."""
    code: Any = 0
    try:
        if arguments[0] == "run":
            from perfkit.cli import main

            code = main(arguments)
        else:
            sys.argv = list(arguments)
            runpy.run_path(arguments[0], run_name="__main__")
    except SystemExit as end:
        code = end.code or 0
    except BaseException:  # noqa: BLE001  as the interpreter prints it
        traceback.print_exc()
        code = 1
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _main() -> None:
    import torch._dynamo
    import torch.distributed.checkpoint.state_dict  # noqa: F401

    runs = json.load(sys.stdin)
    gc.freeze()  # else collections of the forks go through, and copy, all that was imported
    print(json.dumps([_fork(arguments, Path(folder)) for arguments, folder in runs]))


if __name__ == "__main__":
    _main()
