"""Ranks that `perfkit run -n` started end when their parent has died, however it died."""

import multiprocessing
import multiprocessing.util
import os
import signal
import sys
import threading
from typing import NoReturn

from perfkit.capture.lifecycle.local_launch import STDIN_VARIABLE, is_child
from perfkit.util.sigint import end_as_rank

_STDIN = 0


def exit_with_parent() -> None:
    """End this process once the parent's end of its stdin is closed; its stdin becomes what the parent was given."""
    if is_child():
        pipe = os.dup(_STDIN)
        given = os.environ.pop(STDIN_VARIABLE, None)
        source = os.open(os.devnull, os.O_RDONLY) if given is None else int(given)
        os.dup2(source, _STDIN)
        os.close(source)
        threading.Thread(target=_wait_for_end, args=(pipe,), daemon=True).start()


def _wait_for_end(descriptor: int) -> None:
    while os.read(descriptor, 1):
        pass
    exit_now(1)


def exit_now(code: int) -> NoReturn:
    """End this process without waiting for other ranks, and its loader workers with it.

    Args:
        code: The exit code; -SIGINT ends it by that signal.
    """
    for child in multiprocessing.active_children():
        child.terminate()
    # What the interpreter would do at its end: else the semaphores of loader workers are reported as leaked.
    multiprocessing.util._run_finalizers(0)  # type: ignore[attr-defined]
    sys.stdout.flush()
    sys.stderr.flush()
    if code == -signal.SIGINT:
        end_as_rank()
    os._exit(code)
