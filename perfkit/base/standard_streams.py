"""Standard streams that are closed, as under cron and in daemons, or that cannot be written to, as on a full disk.

A closed descriptor is not only a stream without a reader: the next file that is opened gets its number, and receives
what was meant for the stream. So closed ones are connected to the null device before anything else.
"""

import ctypes
import gc
import io
import os
import sys
import threading
from contextlib import suppress
from typing import Final, TextIO

from perfkit.base.formatting import escape_unprintable


def open_closed_streams() -> None:
    """Connect closed standard streams to the null device, in this process and for those that it starts."""
    for descriptor in (0, 1, 2):
        try:
            os.fstat(descriptor)
        except OSError:
            null = os.open(os.devnull, os.O_RDWR)
            os.dup2(null, descriptor)  # inheritable, also if it is the same number
            if null != descriptor:
                os.close(null)
            else:
                os.set_inheritable(descriptor, True)
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115  # until the process ends


def discard(stream: TextIO) -> None:
    """Connect a stream to the null device: Python flushes it once more at exit, and would fail again."""
    with suppress(AttributeError, OSError, ValueError):  # a stream of a test or a script has no descriptor
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, stream.fileno())
        os.close(null)


def write_stderr(line: str) -> None:
    """Print a line on stderr; one that cannot be written is dropped, because the work counts more.

    Names of files, and names from traces, may contain anything, also what controls a terminal.
    """
    with suppress(AttributeError, OSError, ValueError):  # None, or closed, by a script
        sys.stderr.write(f"{escape_unprintable(line)}\n")
        sys.stderr.flush()


def settle_stderr() -> None:
    """Discard what cannot be written to stderr, which would change the exit code when Python flushes it."""
    try:
        if sys.stderr is not None:
            sys.stderr.flush()
    except OSError:
        discard(sys.stderr)
    except Exception:  # noqa: BLE001, S110  a script's own stream, or one that it has closed: left to the interpreter
        pass


def flush_all() -> None:
    """Write what is left of stdout and stderr, which a script may have closed, removed or replaced."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(Exception):  # the outermost boundary: beyond it is the script's stream
            if stream is not None:
                stream.flush()


_LIMIT_S: Final = 1.0
"""How long a file may take: a thread that is stuck in writing to one keeps its lock."""


def write_buffered() -> None:
    """Write what files of Python and of C libraries hold, stdout and stderr among them."""
    flush_all()
    writer = threading.Thread(target=_write_files, daemon=True)
    try:
        writer.start()
    except RuntimeError:  # Python 3.12 and later start no threads at the interpreter's end
        _write_files()
    else:
        writer.join(_LIMIT_S)


def _write_files() -> None:
    for value in gc.get_objects():
        with suppress(Exception):  # the outermost boundary: beyond it are the program's own files
            if issubclass(type(value), io.IOBase) and not value.closed:  # isinstance may run the program's code
                value.flush()
    with suppress(Exception):  # a system without it
        ctypes.CDLL(None).fflush(None)
