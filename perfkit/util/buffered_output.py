"""What open files still hold in memory, for a process that ends without the interpreter's last steps."""

import ctypes
import gc
import io
from contextlib import suppress

from perfkit.util.standard_streams import flush_all


def write_buffered() -> None:
    """Write what files of Python and of C libraries hold, stdout and stderr among them."""
    flush_all()
    for value in gc.get_objects():
        with suppress(Exception):  # the outermost boundary: beyond it are the program's own files
            if issubclass(type(value), io.IOBase) and not value.closed:  # its own __class__ may be a program's code
                value.flush()
    with suppress(Exception):  # a system without it
        ctypes.CDLL(None).fflush(None)
