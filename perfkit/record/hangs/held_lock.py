"""Where a rank is that cannot tell: a call that does not return holds Python's lock, so that no thread of it runs.

faulthandler writes Python stacks from a signal's handler in C, which needs no lock. A rank has it write into a file in
memory, which others of the host find among its open files. A process without that file, or without a handler, is sent
no signal: it would be killed.
"""

import contextlib
import faulthandler
import functools
import os
import re
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from perfkit.base.polling import SHARED_POLL_S
from perfkit.records.hang import Frame

_SIGNAL: Final[int] = getattr(signal, "SIGRTMAX", 0) - 2
"""A real-time signal: programs and libraries use few of these, the first and the last."""
_NAME: Final = "perfkit-stacks"
_THREAD: Final = re.compile(rb"(?:Current thread|Thread) (0x[0-9a-f]{1,16})[^\n]*:\n((?:  [^\n]*\n)*)")
_FRAME: Final = re.compile(r'  File "(.*)", line (\d{1,9}) in (.*)')
_CAUGHT: Final = re.compile(rb"^SigCgt:\s*([0-9a-f]{1,32})$", re.MULTILINE)
_WAIT_S: Final = 2.0
_MOST_BYTES: Final = 1 << 20


@functools.cache
def write_stack_on_signal() -> None:
    """Let this process write its stacks when another one asks, unless the program uses the signal."""
    if _SIGNAL < 1 or not hasattr(os, "memfd_create") or signal.getsignal(_SIGNAL) != signal.SIG_DFL:
        return
    with contextlib.suppress(OSError, RuntimeError, ValueError):  # no memory, or descriptors: a stack less
        descriptor = os.memfd_create(_NAME)
        os.write(descriptor, b"%#x\n" % (threading.main_thread().ident or 0))
        faulthandler.register(_SIGNAL, descriptor, all_threads=True)


def ask_for_stack(pid: int) -> list[Frame]:
    """Return the stack of the main thread of a process of this host, innermost first; empty if it is not to be had."""
    with contextlib.suppress(OSError):
        for path in _files_of(pid):
            if not _has_handler(pid):
                break
            before = len(_read(path))
            os.kill(pid, _SIGNAL)
            data = _read_later(path, before)
            main, _, rest = data.partition(b"\n")
            stacks = [lines for ident, lines in _THREAD.findall(rest) if main and int(ident, 16) == int(main, 16)]
            lines = stacks[-1].decode("ascii", "replace").splitlines() if stacks else []
            frames = (_FRAME.fullmatch(line) for line in lines)
            return [Frame(file=found[1], line=int(found[2]), function=found[3]) for found in frames if found]
    return []


def _files_of(pid: int) -> Iterator[Path]:
    for path in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(OSError):  # it was closed meanwhile
            if os.readlink(path) == f"/memfd:{_NAME} (deleted)":
                yield path


def _has_handler(pid: int) -> bool:
    """Return whether a process handles the signal: its program may have undone that."""
    found = _CAUGHT.search(Path(f"/proc/{pid}/status").read_bytes())
    return found is not None and bool(int(found[1], 16) >> (_SIGNAL - 1) & 1)


def _read(path: Path) -> bytes:
    with path.open("rb") as stream:
        return stream.read(_MOST_BYTES)


def _read_later(path: Path, before: int) -> bytes:
    """Return the file once something was added to it, and nothing more is."""
    deadline = time.monotonic() + _WAIT_S
    data = b""
    while time.monotonic() < deadline:
        time.sleep(SHARED_POLL_S)
        data, earlier = _read(path), data
        if len(data) > before and data == earlier:
            break
    return data
