"""Ctrl-C at exact moments: each process here sends it to itself."""

import signal
import subprocess
import sys
from pathlib import Path

from perfkit.base.process import sigint_blocked
from tests.support.processes.launching import LIMIT_S

INTERRUPT = "import os, signal; os.kill(os.getpid(), signal.SIGINT)"


def run(folder: Path, code: str) -> subprocess.CompletedProcess[str]:
    """Run a program as a module: then a remembered interrupt can change the exit code."""
    (folder / "program.py").write_text(f"import sys\nfrom perfkit.base.process import *\n{code}")
    command = [sys.executable, "-m", "program"]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=LIMIT_S, check=False)


CAUGHT = f"""
try:
    exec({INTERRUPT!r})
except KeyboardInterrupt:
    clear_pending_interrupt()
sys.exit(130)
"""


def test_an_interrupt_that_was_caught_does_not_decide_the_exit_code(tmp_path: Path) -> None:
    assert run(tmp_path, CAUGHT).returncode == 130


SWALLOWED = f"""
{{first}}
with exit_on_sigint():
    try:
        {INTERRUPT}
    except:
        pass
print("on")
"""


def test_an_interrupt_while_torch_is_imported_cannot_be_swallowed(tmp_path: Path) -> None:
    done = run(tmp_path, SWALLOWED.format(first=""))
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "perfkit: error: interrupted\n")


def test_a_process_that_is_not_to_be_interrupted_is_not(tmp_path: Path) -> None:
    ignore = "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN)"
    done = run(tmp_path, SWALLOWED.format(first=ignore))
    assert (done.returncode, done.stdout, done.stderr) == (0, "on\n", "")


def test_a_rank_that_is_interrupted_while_python_starts_ends_quietly_by_it(tmp_path: Path) -> None:
    with sigint_blocked():
        done = run(
            tmp_path, f"{INTERRUPT}\nprint('still', flush=True)\nuse_default_sigint()\nprint('on', flush=True)\n"
        )
    assert (done.returncode, done.stdout, done.stderr) == (-signal.SIGINT, "still\n", "")


def test_a_rank_with_something_to_clean_up_is_told(tmp_path: Path) -> None:
    handlers = "use_default_sigint()\nraise_keyboard_interrupt()\n"
    code = f"{handlers}try:\n    {INTERRUPT}\nexcept KeyboardInterrupt:\n    sys.exit(7)\n"
    done = run(tmp_path, code)
    assert (done.returncode, done.stderr) == (7, "")
