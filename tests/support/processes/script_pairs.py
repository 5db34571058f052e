"""Runs scripts by themselves and under `perfkit run`, in processes forked after torch has been imported.

Importing torch and its compiler takes many seconds, which every process of a matrix would spend again: here one process
imports them, and forks once per run. `python -m tests.support.processes.script_pairs` reads runs from stdin and writes
results to stdout, as JSON.
"""

import gc
import json
import os
import runpy
import signal
import subprocess
import sys
import time
import traceback
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

from tests.support.processes.launching import LIMIT_S, ROOT, environment
from tests.support.processes.ports import free_port


class ScriptRun(NamedTuple):
    """How a script has ended."""

    code: int
    output: str
    errors: str
    wall_s: float
    cpu_s: float


def run_forked(runs: list[tuple[list[str], Path]], *, ranks: int = 1, at_once: bool = False) -> list[ScriptRun]:
    """Return how each run has ended, in order.

    Args:
        runs: Arguments of `python`, or of `perfkit` if they begin with "run"; and a new folder to run in.
        ranks: Processes of each run; several have the environment that torchrun gives its ranks. The code is the worst.
        at_once: Whether all runs are started together, because they wait most of the time, or one after the other.
    """
    done = subprocess.run(
        [sys.executable, "-m", "tests.support.processes.script_pairs"],
        input=json.dumps([ranks, at_once, [(arguments, str(folder)) for arguments, folder in runs]]),
        env=environment(),
        capture_output=True,
        text=True,
        timeout=2 * LIMIT_S,
        check=False,
        cwd=ROOT,
    )
    assert done.returncode == 0, done.stderr
    return [ScriptRun(*row) for row in json.loads(done.stdout)]


class _Running(NamedTuple):
    """A run whose processes have been forked."""

    folder: Path
    begin_s: float
    children: list[int]

    def end(self) -> ScriptRun:
        ends = [os.wait4(child, 0)[1:] for child in self.children]
        wall_s, cpu_s = time.monotonic() - self.begin_s, sum(usage.ru_utime + usage.ru_stime for _, usage in ends)
        output, errors = ((self.folder / name).read_text() for name in ("output", "errors"))
        code = max((os.waitstatus_to_exitcode(status) for status, _ in ends), key=abs)
        return ScriptRun(code, output, errors, wall_s, cpu_s)


def _begin(arguments: list[str], folder: Path, ranks: int) -> _Running:
    folder.mkdir(parents=True)
    begin_s, port = time.monotonic(), free_port()
    places = [launched(rank, ranks, port) if ranks > 1 else {} for rank in range(ranks)]
    return _Running(folder, begin_s, [_fork(arguments, folder, place) for place in places])


def launched(rank: int, ranks: int, port: int) -> dict[str, str]:
    """Return the variables that torchrun gives to a rank on a single host."""
    place = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": ranks, "LOCAL_WORLD_SIZE": ranks, "MASTER_PORT": port}
    return {name: str(value) for name, value in place.items()} | {"MASTER_ADDR": "127.0.0.1"}


def _fork(arguments: list[str], folder: Path, variables: dict[str, str]) -> int:
    child = os.fork()
    if child == 0:
        signal.alarm(LIMIT_S)  # a rank that hangs ends before the test's time is up
        os.environ |= variables
        for number, name in ((1, "output"), (2, "errors")):
            os.dup2(os.open(folder / name, os.O_CREAT | os.O_WRONLY | os.O_APPEND), number)
        os.chdir(folder)
        _end_as(arguments)
    return child


def _end_as(arguments: list[str]) -> NoReturn:
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

    ranks, at_once, runs = json.load(sys.stdin)
    gc.freeze()  # else collections of the forks go through, and copy, all that was imported
    begun = (_begin(arguments, Path(folder), ranks) for arguments, folder in runs)
    print(json.dumps([running.end() for running in (list(begun) if at_once else begun)]))


if __name__ == "__main__":
    _main()
