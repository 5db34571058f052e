"""What open files still hold in memory, for a process that ends without the interpreter's last steps."""

import ctypes
import gc
import io
import threading
from contextlib import suppress
from typing import Final

from perfkit.util.standard_streams import flush_all

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
