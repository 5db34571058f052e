"""`hangs.json` of a run folder: when no step ended for long, and who waited for whom then; read by the report."""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec

from perfkit.base.atomic_write import atomic_write
from perfkit.base.regular_file import read_regular
from perfkit.base.validation import decode_json, plain_message
from perfkit.errors import StoreError
from perfkit.records.common import Observation
from perfkit.records.hang import HANG_LOG_VERSION, HangLog, NoticedHang

HANGS_NAME: Final = "hangs.json"
_MOST_BYTES: Final = 1 << 20


def add_hang(folder: Path, hang: NoticedHang) -> None:
    """Add a hang to those of a run; the rank that noticed it does.

    Raises:
        StoreError: the file cannot be read or written.
    """
    found = HangLog(hangs=[*read_hangs(folder), hang])
    with atomic_write(folder / HANGS_NAME) as stream:
        stream.write(msgspec.json.format(msgspec.json.encode(found), indent=2) + b"\n")


def read_hangs(folder: Path) -> list[NoticedHang]:
    """Return the hangs of a run, in order of time.

    Raises:
        StoreError: the file cannot be read, or is of another version of perfkit.
    """
    path = folder / HANGS_NAME
    try:
        found = decode_json(read_regular(path, most_bytes=_MOST_BYTES), HangLog)
    except (FileNotFoundError, NotADirectoryError):  # of a trace by itself
        return []
    except OSError as error:
        raise StoreError(f"cannot read {path}: {error.strerror}") from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise StoreError(f"{path} is not a list of hangs: {plain_message(str(error))}") from error
    if found.schema_version != HANG_LOG_VERSION:
        raise StoreError(f"{path} has version {found.schema_version}, not {HANG_LOG_VERSION}")
    return found.hangs


def observe_hangs(folder: Path) -> Iterator[Observation]:
    """Yield the hangs of the run in a folder as findings, in order of time, or why they cannot be read."""
    try:
        hangs = read_hangs(folder)
    except StoreError as error:
        yield Observation("hangs_unread", {"error": str(error)})
        return
    for one in hangs:
        values = {"step": one.step, "at": one.noticed_at, "idle_ns": one.idle_ns, "ranks": one.ranks}
        yield Observation("run_hung", values | {"headline": one.headline})
