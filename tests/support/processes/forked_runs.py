"""Records runs of several ranks one after the other, importing torch once for all: the ranks are forks.

Usage: python -m tests.support.processes.forked_runs RANKS "ARGUMENTS OF perfkit run" …
"""

import gc
import importlib
import os
import signal
import sys
import traceback

from perfkit.cli.recording.run_options import parse_job
from perfkit.record.training.worker import run_rank
from tests.support.processes.launching import LIMIT_S
from tests.support.processes.ports import free_port
from tests.support.processes.script_pairs import launched

_LATER = "torch._dynamo", "torch.distributed.fsdp", "torch.distributed.optim", "torch.distributed.pipelining"
"""What training imports later."""


def _run(rank: int, ranks: int, port: int, words: list[str]) -> None:
    os.environ |= launched(rank, ranks, port)
    run_rank(parse_job(words))


def _fork(rank: int, ranks: int, port: int, words: list[str]) -> int:
    if child := os.fork():
        return child
    signal.alarm(LIMIT_S)  # a hanging rank ends, and its case with it, before the test's time is up
    try:
        _run(rank, ranks, port, words)
        sys.stdout.flush()
    except BaseException:  # noqa: BLE001  # a fork must never return into the parent's code
        traceback.print_exc()
        os._exit(1)
    os._exit(0)


def main(ranks: int, cases: list[str]) -> int:
    """Record the cases and return the worst exit code."""
    for name in _LATER:
        importlib.import_module(name)
    gc.freeze()  # else collections of the ranks go through, and copy, all that was imported
    worst = 0
    for case in cases:
        port = free_port()
        children = [_fork(rank, ranks, port, case.split()) for rank in range(ranks)]
        ends = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
        if any(ends):
            sys.stderr.write(f"{case}: the ranks ended with {ends}\n")
        worst = max(worst, *map(abs, ends))  # negative if a signal has killed it
    return worst


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), sys.argv[2:]))
