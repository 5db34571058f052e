"""A file that is opened once, and then read by any number of threads, whatever becomes of its name."""

import errno
import os
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

from perfkit.util.regular_file import open_regular

_PIECE_BYTES: Final = 1 << 20


class KeptFile:
    """A regular file that stays open: its name may soon lead to a pipe, to another file, or nowhere.

    Args:
        path: The file.

    Raises:
        OSError: It cannot be opened, or is not a regular file.
    """

    def __init__(self, path: Path) -> None:
        self.name = path.name
        self._closing = threading.Lock()
        self._opened = ExitStack()
        self._stream = self._opened.enter_context(open_regular(path))

    @contextmanager
    def descriptor(self) -> Iterator[int]:
        """Lend a descriptor, which stays open if the file is closed meanwhile; its position is shared (see `pieces`).

        Raises:
            OSError: The file is closed.
        """
        with self._closing:  # the number of a closed descriptor may be another file's at once
            if self._stream.closed:
                raise OSError(errno.EBADF, "it is no longer served", self.name)
            lent = os.dup(self._stream.fileno())
        try:
            yield lent
        finally:
            os.close(lent)

    def close(self) -> None:
        """Close the file; who reads it now reads on."""
        with self._closing:
            self._opened.close()


def pieces(descriptor: int, size: int) -> Iterator[bytes]:
    """Yield the first `size` bytes of a file, or what there is, without its position: several threads may read it."""
    at = 0
    while piece := os.pread(descriptor, min(_PIECE_BYTES, size - at), at):
        at += len(piece)
        yield piece
