"""Run folders: their names, the manifest `run.json`, and the files of a run.

::

    traces/<run>/run.json                       the manifest (RunManifest)
                 rank<R>[.cycle<C>].json.gz     one trace per rank and cycle
                 rank<R>[.cycle<C>].key_averages.txt
                 rank0[.cycle<C>].pyinstrument.{html,speedscope.json,txt}    --pyinstrument
                 rank<R>[.cycle<C>].memory.pickle                            --memory-snapshot
                 rank<R>.nccl.log                                            --nccl-debug
                 rank<R>.steps                                               --monitor
                 rank<R>.hang.json, hang.json   only if no step ended for long: what each rank did, the diagnosis
                 hangs.json                     the same, of a run that was not ended for that: when, for how long
                 capture-<N>                    steps recorded on demand, a folder like that of a run, with
                                                rank<R>.earlier_steps.json: how long the steps before them took
                 failure.json                   only after a failure: the first failed rank and the reason
"""

import contextlib
import os
import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from perfkit.base.atomic_write import atomic_write
from perfkit.base.formatting import escape_all
from perfkit.base.regular_file import read_regular
from perfkit.base.validation import decode_json, plain_message
from perfkit.errors import StoreError
from perfkit.records.manifest import FILE_KINDS, MANIFEST_VERSION, Failure, FileKind, RunManifest, TraceFile
from perfkit.records.sweep import SWEEP_VERSION, Sweep, SweepPoint

MANIFEST_NAME: Final = "run.json"
FAILURE_NAME: Final = "failure.json"
SWEEP_NAME: Final = "sweep.json"
"""Describes a sweep, beside the folders of its runs."""

_MOST_BYTES: Final = 512 << 20
"""Of `run.json` and `sweep.json`. A step of a rank has some 60 bytes: 100,000 steps of 80 ranks."""
_MOST_FAILURE_BYTES: Final = 1 << 20
"""Of `failure.json`."""

_KINDS: Final[dict[str, FileKind]] = {
    "json.gz": "trace",
    "key_averages.txt": "key_averages",
    "pyinstrument.html": "python_profile",
    "pyinstrument.speedscope.json": "python_profile",
    "pyinstrument.txt": "python_profile",
    "memory.pickle": "memory_snapshot",
    "nccl.log": "nccl_log",
    "earlier_steps.json": "earlier_steps",
    "steps": "step_log",
}
_SUFFIXES = "|".join(re.escape(suffix) for suffix in _KINDS)
_STATE = re.compile(rb'^  "state": (?P<value>"(?:running|completed)")', re.MULTILINE)
_CAPTURE = re.compile(r"capture-\d{1,9}")
_FILE = re.compile(rf"rank(?P<rank>\d+)(?:\.cycle(?P<cycle>\d+))?\.(?P<suffix>{_SUFFIXES})")


def is_capture(name: str) -> bool:
    """Return whether a folder in a run's folder is named like a capture."""
    return _CAPTURE.fullmatch(name) is not None


def create_run_folder(trace_dir: Path, name: str) -> Path:
    """Create `trace_dir/name`, or `name-2`, `name-3`, … if that exists; never reuse a folder.

    Raises:
        StoreError: `trace_dir` cannot be created or written, or the path is not UTF-8.
    """
    try:
        whole = Path(os.path.abspath(trace_dir / name))
        str(whole).encode()
    except UnicodeEncodeError as error:
        raise StoreError(
            f"cannot record into {whole}: the path is not UTF-8, as JSON requires; choose another folder"
        ) from error
    except OSError as error:
        raise StoreError(f"the working directory is gone: {error.strerror}: change to another") from error
    suffix = 1
    while True:
        folder = trace_dir / (name if suffix == 1 else f"{name}-{suffix}")
        try:
            trace_dir.mkdir(parents=True, exist_ok=True)
            folder.mkdir()
        except FileExistsError as error:
            if not trace_dir.is_dir():
                raise StoreError(f"{trace_dir} is not a folder: choose another --trace-dir") from error
            suffix += 1
        except OSError as error:
            raise StoreError(
                f"cannot create the run folder {folder}: {error.strerror}: choose another --trace-dir"
            ) from error
        else:
            return folder


def file_stem(rank: int, cycle: int, cycles: int) -> str:
    """Return the name, without suffix, of the files that `rank` writes for `cycle` (from 0) of `cycles`."""
    return f"rank{rank}" if cycles == 1 else f"rank{rank}.cycle{cycle}"


def list_files(folder: Path) -> list[TraceFile]:
    """Return the finished files of a run by rank, cycle and kind, without temporary ones."""
    files = []
    for path in folder.iterdir():
        if match := _FILE.fullmatch(path.name):
            with contextlib.suppress(FileNotFoundError):  # another process has removed it since
                size = path.stat().st_size
                kind, rank, cycle = _KINDS[match["suffix"]], int(match["rank"]), int(match["cycle"] or 0)
                files.append(TraceFile(path=path.name, rank=rank, cycle=cycle, bytes=size, kind=kind))
    return sorted(files, key=lambda file: (file.rank, file.cycle, FILE_KINDS.index(file.kind), file.path))


def write_manifest(folder: Path, manifest: RunManifest) -> None:
    """Write `run.json` atomically.

    Raises:
        StoreError: it cannot be written.
    """
    _write_json(folder / MANIFEST_NAME, manifest)


def _write_json(path: Path, value: Any) -> None:
    try:
        encoded = msgspec.json.encode(value)
    except UnicodeEncodeError:  # a script, its arguments or the run's folder have names that are not UTF-8
        encoded = msgspec.json.encode(escape_all(msgspec.to_builtins(value)))
    with atomic_write(path) as stream:
        stream.write(msgspec.json.format(encoded, indent=2) + b"\n")


def read_manifest(folder: Path) -> RunManifest:
    """Read `run.json` of a run folder, with the failure of a run that could not record it there.

    Raises:
        StoreError: it is missing, damaged, or written by another version of perfkit.
    """
    path = folder / MANIFEST_NAME
    try:
        data = read_regular(path, most_bytes=_MOST_BYTES)
        _check_version(path, data, MANIFEST_VERSION)
        return _with_failure(folder, decode_json(data, RunManifest))
    except OSError as error:
        raise StoreError(f"cannot read {path}: {error.strerror}") from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise StoreError(f"{path} is not a valid manifest: {plain_message(str(error))}") from error


def _with_failure(folder: Path, manifest: RunManifest) -> RunManifest:
    """Return the manifest, as failed if `failure.json` exists: on a full disk `run.json` cannot be updated."""
    if manifest.state == "completed" or manifest.failure is not None:
        return manifest
    try:
        data = read_regular(folder / FAILURE_NAME, most_bytes=_MOST_FAILURE_BYTES)
    except OSError:  # still running, or killed
        return manifest
    try:
        failure = decode_json(data, Failure)
    except msgspec.DecodeError:  # it could not be written completely
        failure = None
    return replace(manifest, state="failed", failure=failure)


def write_sweep(folder: Path, points: list[SweepPoint]) -> None:
    """Write `sweep.json` atomically.

    Raises:
        StoreError: it cannot be written.
    """
    _write_json(folder / SWEEP_NAME, Sweep(points=points))


def read_sweep(folder: Path) -> list[SweepPoint]:
    """Return the points of `sweep.json` in a folder; none if there is no such file.

    Raises:
        StoreError: it is damaged, or written by another version of perfkit.
    """
    path = folder / SWEEP_NAME
    try:
        data = read_regular(path, most_bytes=_MOST_BYTES)
        _check_version(path, data, SWEEP_VERSION)
        return decode_json(data, Sweep).points
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise StoreError(f"cannot read {path}: {error.strerror}") from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise StoreError(f"{path} is not a valid sweep record: {plain_message(str(error))}; move it away") from error


class _Versioned(msgspec.Struct):
    schema_version: int


def _check_version(path: Path, data: bytes, expected: int) -> None:
    """Refuse a file of another schema version."""
    version = decode_json(data, _Versioned).schema_version
    if version != expected:
        remedy = "update perfkit" if version > expected else "an older perfkit wrote it, record the run again"
        raise StoreError(f"{path} has schema version {version}, this perfkit reads {expected}: {remedy}")


def claim_failure(folder: Path, failure: Failure) -> bool:
    """Write `failure.json` unless another rank has; return whether this rank was the first."""
    try:
        with (folder / FAILURE_NAME).open("xb") as stream:
            stream.write(msgspec.json.encode(failure) + b"\n")
    except FileExistsError:
        return False
    except OSError:
        return True  # a full disk: better one message too many than none
    return True


def read_failure(folder: Path) -> Failure | None:
    """Return the failure of the first failed rank; None if there is none, or the file is incomplete (yet)."""
    try:
        return decode_json(read_regular(folder / FAILURE_NAME, most_bytes=_MOST_FAILURE_BYTES), Failure)
    except (OSError, msgspec.DecodeError):
        return None


def fail(folder: Path, failure: Failure, known: dict[str, Any]) -> None:
    """Write the manifest with state "failed" and the fields in `known`; called by the rank that claimed the failure.

    On a full disk at least the state is changed, where it stands.

    Raises:
        StoreError: the manifest cannot be read or written.
    """
    manifest = msgspec.structs.replace(
        read_manifest(folder),
        state="failed",
        failure=failure,
        finished_at=datetime.now(UTC).isoformat(timespec="seconds"),
        files=list_files(folder),
        **known,
    )
    try:
        write_manifest(folder, manifest)
    except StoreError:
        # A manifest that cannot be replaced is changed without any more bytes than it has.
        with contextlib.suppress(OSError), (folder / MANIFEST_NAME).open("r+b") as stream:
            match = _STATE.search(stream.read())
            if match is not None:
                stream.seek(match.start("value"))
                stream.write(b'"failed"'.ljust(len(match["value"])))
        raise
