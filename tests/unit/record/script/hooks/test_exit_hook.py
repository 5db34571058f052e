"""What the script asks `os._exit` for happens, and soon, whatever perfkit does before."""

import subprocess
import sys

import pytest

BEGIN = """
import os, signal, threading, time
from perfkit.record.own_threads import start_own_thread
from perfkit.record.script.hooks.ending_hooks import before_exit_at_once
"""
SAY = "before_exit_at_once(lambda code: print('ends with', code, threading.active_count(), flush=True))\n"


@pytest.mark.parametrize(
    ("script", "code", "output"),
    [
        (f"{SAY}os._exit(3)", 3, "ends with 3 1\n"),
        (f"{SAY}threading.Thread(target=os._exit, args=(0,)).start(); time.sleep(60)", 0, "ends with 0 2\n"),
        (f"{SAY}signal.signal(signal.SIGTERM, lambda *_: os._exit(4)); os.kill(os.getpid(), 15)", 4, "ends with 4 1\n"),
        (f"{SAY}os._exit(-1)", 255, "ends with 255 1\n"),
        (f"{SAY}print(os.waitstatus_to_exitcode(os.waitpid(os.fork() or os._exit(5), 0)[1]))", 0, "5\n"),
        (f"{SAY}start_own_thread('ends', os._exit, 7).join()", 7, ""),
        ("before_exit_at_once(lambda _: time.sleep(60))\nos._exit(6)", 6, ""),
        (
            f"{SAY}print(os._exit.__name__)\ntry: os._exit('3')\nexcept TypeError: print('refused')",
            0,
            "_exit\nrefused\n",
        ),
    ],
)
def test_the_process_ends_as_it_would(script: str, code: int, output: str) -> None:
    command = [sys.executable, "-c", BEGIN + script]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (code, output, "")
