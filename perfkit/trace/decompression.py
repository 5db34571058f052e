"""Decompress a file piece by piece; its first bytes show the format.

Decompression runs ahead in a thread: isal and zstandard release the GIL while they work, so with a second core it takes
almost no extra time.
"""

import os
import threading
from collections.abc import Callable, Generator, Iterator
from contextlib import suppress
from pathlib import Path
from queue import Empty, Full, Queue
from typing import BinaryIO, Final, NoReturn

from perfkit.base.regular_file import hole_bytes, open_file
from perfkit.errors import TraceError

GZIP_MAGIC: Final = b"\x1f\x8b"
ZSTD_MAGIC: Final = b"\x28\xb5\x2f\xfd"
SKIPPABLE: Final = tuple(bytes([0x50 + k]) + b"\x2a\x4d\x18" for k in range(16))
"""Skippable frames of zstd; pzstd begins with one."""

PIECE_BYTES: Final = 1 << 18
MAX_BYTES: Final = 64 << 30
"""Default limit of the text: four days of profiling at the rate of the largest known traces."""

_PREFETCH: Final = 8
"""Number of pieces that may wait for the parser."""
_FREE_BYTES: Final = 256 << 20
_LARGEST_RATIO: Final = 250
"""Traces compress 10 to 40 times. More than this, beyond the first 256 MiB, is an attack on memory."""
_FREE_EVENTS: Final = 200_000
"""Beyond this number, an event takes at least one byte of the file; real ones take six, because their times differ."""
_ZSTD_WINDOW_BYTES: Final = 1 << 27
"""zstd's own default limit."""
_INPUT_BYTES: Final = 1 << 10
"""What is decompressed at once: of damaged data, the text of the last piece before the damage is lost."""
_ZSTD_DENSE_INPUT_BYTES: Final = 1 << 5
"""A block of zstd of 4 bytes may expand to 128 KiB: this much input to 1 MiB at most, the other to 32 MiB."""


class BrokenStreamError(Exception):
    """The compressed data ends too soon or is damaged; the text before the damage has been yielded."""


class TraceText:
    """The text of one file.

    Args:
        max_bytes: refuse more text than this. None means 64 GiB, and refuses implausible compression ratios.
        progress: called with the number of bytes of the file read since the last call, from the reading thread.
    """

    def __init__(
        self, path: Path, *, max_bytes: int | None = None, progress: Callable[[int], None] | None = None
    ) -> None:
        self._path = path
        self._max_bytes = max_bytes
        self._progress = progress
        self.read_bytes = 0
        """Bytes of the file read so far."""
        self.text_bytes = 0
        """Bytes of text so far."""

    def pieces(self) -> Generator[bytes, None, None]:
        """Yield the text.

        Raises:
            BrokenStreamError: the compressed data is damaged or cut off.
            TraceError: the file cannot be read, or has more text than allowed.
        """
        try:
            with open_file(self._path) as file:
                # A file may be enormous only because it has holes, which take no space in an archive.
                unwritten = hole_bytes(file.fileno())
                if self._max_bytes is None and unwritten > _FREE_BYTES:
                    size = os.fstat(file.fileno()).st_size
                    first = size - unwritten
                    raise TraceError(
                        f"{self._path}: possible bomb: nothing was written from byte {first:,} on, of {size:,} bytes; "
                        "if the file is genuine, --max-bytes allows it"
                    )
                magic = file.peek(4)[:4]
                if magic.startswith(GZIP_MAGIC):
                    yield from _prefetched(self._counted(_gunzip(_sliced(self._raw(file)))))
                elif magic.startswith((ZSTD_MAGIC, *SKIPPABLE)):
                    yield from _prefetched(self._counted(_unzstd(_sliced(self._raw(file)))))
                else:
                    yield from self._counted(self._raw(file))
        except OSError as error:
            raise TraceError(f"{self._path}: cannot be read: {error.strerror or error}") from error

    def _raw(self, file: BinaryIO) -> Iterator[bytes]:
        while piece := file.read(PIECE_BYTES):
            self.read_bytes += len(piece)
            if self._progress:
                self._progress(len(piece))
            yield piece

    def _counted(self, pieces: Iterator[bytes]) -> Iterator[bytes]:
        for piece in pieces:
            self.text_bytes += len(piece)
            if self._max_bytes is None and self.text_bytes > _FREE_BYTES + _LARGEST_RATIO * self.read_bytes:
                self._refuse(f"expand to more than {self.text_bytes:,}")
            if self.text_bytes > (self._max_bytes or MAX_BYTES):
                raise TraceError(
                    f"{self._path}: more than {self._max_bytes or MAX_BYTES:,} bytes of text: --max-bytes allows more"
                )
            yield piece

    def check_event_count(self, kept: int) -> None:
        """Refuse an implausible number of events for the size of the file, unless `max_bytes` allows it.

        Raises:
            TraceError: there are too many events.
        """
        if self._max_bytes is None and kept > _FREE_EVENTS + self.read_bytes:
            self._refuse(f"hold more than {kept:,} events")

    def _refuse(self, what: str) -> NoReturn:
        raise TraceError(
            f"{self._path}: possible decompression bomb: {self.read_bytes:,} bytes {what}; "
            "if the file is genuine, --max-bytes allows it"
        )


def _sliced(raw: Iterator[bytes]) -> Iterator[bytes]:
    for piece in raw:
        for at in range(0, len(piece), _INPUT_BYTES):
            yield piece[at : at + _INPUT_BYTES]


def _joined(pieces: Iterator[bytes]) -> Iterator[bytes]:
    """Join short pieces: each that waits for the parser costs a switch of threads."""
    held, size = [], 0
    try:
        for piece in pieces:
            held.append(piece)
            size += len(piece)
            if size >= PIECE_BYTES:
                yield b"".join(held)
                held, size = [], 0
    except BrokenStreamError:
        yield b"".join(held)
        raise
    if held:
        yield b"".join(held)


def _gunzip(raw: Iterator[bytes]) -> Iterator[bytes]:
    """Decompress gzip, any number of members; zeros after the last are padding."""
    from isal import igzip_lib

    rest = b""
    members = 0
    while rest := rest.lstrip(b"\0") or next(raw, b""):
        if members and not rest.startswith(GZIP_MAGIC[: len(rest)]):
            if rest.strip(b"\0"):
                raise BrokenStreamError("the data after the gzip stream is not gzip")
            rest = b""
            continue
        member = igzip_lib.IgzipDecompressor(flag=igzip_lib.DECOMP_GZIP)
        members += 1
        try:
            while not member.eof:
                if not rest and not (rest := next(raw, b"")):
                    raise BrokenStreamError("damaged gzip data: it ends too soon")
                if text := member.decompress(rest):
                    yield text
                rest = b""
        except igzip_lib.IsalError as error:  # type: ignore[misc]
            raise BrokenStreamError(f"damaged gzip data ({error})") from error
        rest = member.unused_data


def _unzstd(raw: Iterator[bytes]) -> Iterator[bytes]:
    """Decompress zstd, any number of frames."""
    import zstandard

    decompressor = zstandard.ZstdDecompressor(max_window_size=_ZSTD_WINDOW_BYTES)
    frame = decompressor.decompressobj()
    at_boundary, size = True, _INPUT_BYTES
    try:
        for piece in raw:
            rest = piece
            while rest:
                text = frame.decompress(rest[:size])
                rest = frame.unused_data + rest[size:]
                size = _ZSTD_DENSE_INPUT_BYTES if len(text) > _LARGEST_RATIO * size else _INPUT_BYTES
                at_boundary = frame.eof
                if frame.eof:
                    frame = decompressor.decompressobj()
                if text:
                    yield text
    except zstandard.ZstdError as error:
        if "too much memory" in str(error):
            most = f"a window of more than {_ZSTD_WINDOW_BYTES >> 20} MiB"
            raise BrokenStreamError(f"zstd data with {most}: compress it without --long") from error
        raise BrokenStreamError(f"damaged zstd data ({error})") from error
    if not at_boundary:
        raise BrokenStreamError("damaged zstd data: it ends too soon")


def _prefetched(pieces: Iterator[bytes]) -> Iterator[bytes]:
    """Run the iterator in a thread, a few pieces ahead; its errors are raised here."""
    queue: Queue[bytes | BaseException | None] = Queue(_PREFETCH)
    stopped = threading.Event()
    thread = threading.Thread(
        target=_produce, args=(_joined(pieces), queue, stopped), name="perfkit-decompress", daemon=True
    )
    thread.start()
    try:
        while (item := queue.get()) is not None:
            if isinstance(item, BaseException):
                raise item
            yield item
    finally:
        stopped.set()
        with suppress(Empty):  # wakes a thread that waits for room
            while True:
                queue.get_nowait()
        thread.join()


def _produce(pieces: Iterator[bytes], queue: "Queue[bytes | BaseException | None]", stopped: threading.Event) -> None:
    """Put the iterator's items, then None or its error; end early when stopped."""

    def put(item: bytes | BaseException | None) -> None:
        while not stopped.is_set():
            with suppress(Full):
                queue.put(item, timeout=0.1)
                return

    try:
        for piece in pieces:
            put(piece)
            if stopped.is_set():
                return
        put(None)
    except BaseException as error:  # noqa: BLE001 - raised again in the consumer's thread
        put(error)
