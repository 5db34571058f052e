"""Ranks that `perfkit run -n` started end when their parent has died, however it died."""

import os
import sys
import threading

from perfkit.run.launch import is_child


def watch_parent() -> None:
    """End this process once the parent's end of its stdin is closed."""
    if is_child():
        threading.Thread(target=_wait_for_end, args=(sys.stdin.fileno(),), daemon=True).start()


def _wait_for_end(descriptor: int) -> None:
    while os.read(descriptor, 1):
        pass
    os._exit(1)
