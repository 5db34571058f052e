"""Kill monitored training loops with SIGKILL at random moments, and read what their logs have.

Usage: python -m tests.support.processes.killed_monitors FOLDER KILLS

Each loop is a fork of this process, which has imported torch already. It writes the number of each step to a pipe when
`step()` has returned. Prints a line per loop: steps that had returned, steps in the log, records that were left out.
"""

import os
import random
import select
import signal
import sys
import time
from pathlib import Path
from typing import Final

import numpy as np
import torch

import perfkit
from perfkit.options.recording import LEAST_MOST_BYTES
from perfkit.record.monitor import step_monitor
from perfkit.storage.step_log.reader import StepLogReader, find_step_logs

_NUMBER: Final = 8
_START_S: Final = 60.0


def main(folder: Path, kills: int) -> None:
    """Kill so many loops."""
    step_monitor._SAMPLE_S = 0.02  # type: ignore[misc]  # logs are rolled up all the time
    for number in range(kills):
        after_s = random.Random(number).uniform(0, 0.5)  # noqa: S311  no secret
        returned = _kill_one(folder / f"{number:03}", after_s)
        print(returned, *_read(folder / f"{number:03}"), flush=True)


def _kill_one(run: Path, after_s: float) -> int:
    """Return how many steps had returned when the loop was killed."""
    read, write = os.pipe()
    child = os.fork()
    if not child:
        os.close(read)
        _train(run, write)
    os.close(write)
    select.select([read], [], [], _START_S)  # until the first step has ended
    time.sleep(after_s)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    data = b""
    while chunk := os.read(read, 1 << 16):
        data += chunk
    os.close(read)
    return len(data) // _NUMBER


def _train(run: Path, pipe: int) -> None:
    torch.set_num_threads(1)
    model = torch.nn.Linear(8, 8)
    with perfkit.monitor(run, monitor_bytes=f"{LEAST_MOST_BYTES}") as mon:
        for step in range(100_000):
            loss = model(torch.ones(1, 8)).sum()
            loss.backward()
            mon.step(loss)
            os.write(pipe, step.to_bytes(_NUMBER, "little"))
    os._exit(0)


def _read(run: Path) -> tuple[int, int]:
    reader = StepLogReader(find_step_logs(run)[0])
    found = [reader.read_new() for _ in range(8)]
    records = np.concatenate([one.records for one in found])
    assert (records["step"][1:] == records["step"][:-1] + records["steps"][:-1]).all()
    return int(records["steps"].sum()), sum(one.damaged for one in found)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
