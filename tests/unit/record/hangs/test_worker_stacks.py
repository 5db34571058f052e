"""A forked process leaves its stack when it is asked to, even if it was forked before the run had a folder."""

import os
import subprocess
import sys
from pathlib import Path

from tests.support.processes.launching import LIMIT_S

PROGRAM = """
import multiprocessing, sys, time
from pathlib import Path
from perfkit.record.hangs import worker_stacks as module
from perfkit.record.hangs.worker_stacks import REQUEST_NAME, follow_forks, share_run, worker_stacks

module._WAIT_S = 300.0  # on a busy machine
reads = multiprocessing.get_context("fork").Event()

def read_sample():
    follow_forks()  # as the recorder of every process does
    reads.set(); time.sleep(600)

follow_forks()
worker = multiprocessing.get_context("fork").Process(target=read_sample, daemon=True)
worker.start()
reads.wait()
folder = Path(sys.argv[1])
share_run(folder, 3)
(folder / f".rank3.worker{worker.pid}.0").write_text("[]")  # a late answer to an earlier request
for number in (0, 1):
    (folder / REQUEST_NAME.format(number)).touch()
(found,) = worker_stacks(folder, 3, 1)
assert found.pid == worker.pid
print([frame.function for frame in found.frames][:1])
"""


def test_a_worker_that_was_forked_early_leaves_its_stack(tmp_path: Path) -> None:
    folder = os.fsencode(tmp_path) + b"/caf\xe9"  # no UTF-8
    os.mkdir(folder)
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, folder], capture_output=True, text=True, timeout=LIMIT_S, check=False
    )
    assert (done.stdout, done.stderr) == ("['read_sample']\n", "")
