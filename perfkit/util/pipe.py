"""Open a file that may be a pipe."""

import errno
import os
import threading
from contextlib import suppress
from io import BufferedReader
from pathlib import Path
from typing import Final

_WRITER_S: Final = 10.0
"""How long the process that writes into a pipe may take to open it: a shell has begun it at about the same time."""


def open_file(path: Path) -> BufferedReader:
    """Open a file for reading; if it is a pipe, without waiting for ever for a process that writes into it.

    Raises:
        OSError: It cannot be opened, or is a pipe that no process has opened for writing.
    """
    if not path.is_fifo():
        return path.open("rb")
    return _Opening(path).wait()


class _Opening:
    """Opens a pipe in a thread, since that waits for the other end."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: BufferedReader | None = None
        self._error: OSError | None = None
        self._thread = threading.Thread(target=self._open, daemon=True)
        self._thread.start()

    def _open(self) -> None:
        try:
            self._file = self._path.open("rb")
        except OSError as error:
            self._error = error

    def wait(self) -> BufferedReader:
        """Return the pipe once the other end is open.

        Raises:
            OSError: It cannot be opened, or the other end is not open in time.
        """
        self._thread.join(_WRITER_S)
        if self._thread.is_alive():
            with suppress(OSError):  # lets the thread end
                os.close(os.open(self._path, os.O_WRONLY | os.O_NONBLOCK))
            self._thread.join(1)
            if self._file is not None:
                self._file.close()
            reason = f"it is a pipe, and no process has opened it for writing within {_WRITER_S:g} s"
            raise OSError(errno.ETIMEDOUT, reason)
        if self._file is None:
            raise self._error or OSError(errno.EIO, os.strerror(errno.EIO))
        return self._file
