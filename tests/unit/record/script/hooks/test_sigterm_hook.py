"""SIGTERM ends a process, whatever goes wrong in what is called before."""

import signal
import subprocess
import sys

from tests.support.processes.launching import LIMIT_S

STUCK = """
import ctypes
from perfkit.record.script.hooks import ending_hooks
def fail():
    raise OSError("the disk is full")
ending_hooks.GRACE_S = 0.1
ending_hooks.SigtermHook(fail, fail).install()
# Does not return to Python when the signal arrives.
ctypes.CDLL(None).system(b"kill -TERM $PPID; exec >&- 2>&-; while kill -0 $PPID; do sleep 0.05; done")
"""


def test_a_stuck_process_ends_although_what_is_called_before_fails() -> None:
    done = subprocess.run([sys.executable, "-c", STUCK], capture_output=True, check=False, timeout=LIMIT_S)
    assert (done.returncode, done.stderr) == (128 + signal.SIGTERM, b"")


FAILS = """
import os, signal, time
from perfkit.record.script.hooks.ending_hooks import SigtermHook
def fail():
    raise OSError("the disk is full")
SigtermHook(fail, fail).install()
try:
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(60)
except OSError:
    print("the script goes on")
"""


def test_a_process_ends_although_what_is_called_before_fails() -> None:
    done = subprocess.run([sys.executable, "-c", FAILS], capture_output=True, check=False, timeout=LIMIT_S)
    assert (done.returncode, done.stdout, done.stderr) == (-signal.SIGTERM, b"", b"")
