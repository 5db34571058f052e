"""Name the kind of a file that is not a trace, from its first bytes, after decompression."""

import re
from contextlib import closing
from pathlib import Path
from typing import Final

from perfkit.errors import TraceError
from perfkit.trace.decompression import BrokenStreamError, TraceText

_HEAD_BYTES: Final = 512
_TAR_MAGIC_AT: Final = 257
_LEGACY_CHECKPOINT: Final = b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19."
"""`torch.save` before its zip format: a pickle that begins with torch's magic number."""
_MAGIC: Final = (
    (_LEGACY_CHECKPOINT, "a PyTorch checkpoint"),
    (b"\x89HDF\r\n\x1a\n", "an HDF5 file"),
    (b"\x93NUMPY", "a NumPy array"),
    (b"PAR1", "a Parquet file"),
    (b"SQLite format 3\0", "an SQLite database"),
    (b"\x89PNG", "an image"),
    (b"%PDF", "a PDF document"),
    (b"\x7fELF", "a program or library"),
    (b"BZh", "a bzip2 archive"),
    (b"\xfd7zXZ", "an xz archive"),
)
_PICKLE: Final = re.compile(rb"\x80[\x02-\x05]")
_CHECKPOINT_ENTRY: Final = re.compile(rb"[^/]+/(data\.pkl|\.format_version|byteorder|constants\.pkl)")
_SAFETENSORS: Final = re.compile(rb".{5}\x00{3}\{", re.DOTALL)
_OWN_VERSION: Final = rb'"perfkit_version"\s*:\s*"[^"]*"\s*,\s*'
_OWN_JSON: Final = (
    (_OWN_VERSION + rb'"runs"', "a report of perfkit: read it with perfkit.load_report, or give the traces themselves"),
    (_OWN_VERSION, "what perfkit wrote, not a trace: give the traces themselves"),
    (rb'"run"', "the record of a run: give the run's folder instead"),
)
"""The keys of what perfkit writes, after `schema_version`: only in a report, "runs" follows perfkit's version."""
_VERSIONED: Final = rb'\s*\{\s*"schema_version"\s*:\s*\d+\s*,\s*'


def describe_file(path: Path) -> str | None:
    """Return what a file is, such as "a PyTorch checkpoint"; None if its first bytes do not show it, or it is a pipe.

    What a pipe has given before, it does not give again: reading would wait for another writer.
    """
    if path.is_fifo():
        return None
    head = _head(path)
    for magic, kind in _MAGIC:
        if head.startswith(magic):
            return kind
    if head.startswith(b"PK\x03\x04"):
        length = int.from_bytes(head[26:28], "little")
        is_checkpoint = _CHECKPOINT_ENTRY.fullmatch(head[30 : 30 + length])
        return "a PyTorch checkpoint" if is_checkpoint else "a zip archive"
    if _PICKLE.match(head):
        return "a Python pickle"
    if _SAFETENSORS.match(head):
        return "a safetensors file"
    if head[_TAR_MAGIC_AT:].startswith(b"ustar"):
        return "a tar archive"
    return "a text file" if _is_text(head) else None


def describe_own_json(path: Path) -> str | None:
    """Return what a JSON file is that perfkit wrote, with what to do instead of analysing it; None for any other."""
    if path.is_fifo():
        return None
    head = _head(path)
    return next((kind for key, kind in _OWN_JSON if re.match(_VERSIONED + key, head)), None)


def _head(path: Path) -> bytes:
    """Return the first bytes of what a file contains; fewer where it is damaged or cannot be read."""
    head = b""
    try:
        with closing(TraceText(path).pieces()) as pieces:
            for piece in pieces:
                head += piece[:_HEAD_BYTES]
                if len(head) >= _HEAD_BYTES:
                    break
    except (BrokenStreamError, TraceError):
        pass
    return head[:_HEAD_BYTES]


def _is_text(head: bytes) -> bool:
    """Return whether text begins that is no JSON document; the last character may be cut off."""
    text = head.decode("utf-8", errors="ignore").strip()
    printable = all(character.isprintable() or character.isspace() for character in text)
    return bool(text) and printable and len(text) > len(head) // 2 and text[0] not in '{["'
