"""NCCL's own log, one file a rank in the run's folder: `--nccl-debug`.

NCCL opens its log when the ranks join, and there is no run folder before that. So it begins beside the folder and is
moved into it: the open file goes along.
"""

import os
from pathlib import Path

from perfkit.capture.config import NcclLevel
from perfkit.errors import StoreError


def request_log(level: NcclLevel, trace_dir: Path, rank: int) -> None:
    """Tell NCCL to log into `trace_dir`, where the log stays if the ranks cannot join; before they try to.

    Raises:
        StoreError: The folder cannot be made.
    """
    try:
        trace_dir.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StoreError(f"cannot create {trace_dir}: {error.strerror}: choose another --trace-dir") from error
    os.environ["NCCL_DEBUG"] = level.upper()
    os.environ["NCCL_DEBUG_FILE"] = str(_begun(trace_dir, rank).absolute())


def collect_log(trace_dir: Path, folder: Path, rank: int) -> None:
    """Move the log into the run's folder, as `rank<R>.nccl.log`; NCCL goes on writing to it.

    Raises:
        StoreError: It cannot be moved.
    """
    path = _begun(trace_dir, rank)
    try:
        path.rename(folder / f"rank{rank}.nccl.log")
    except FileNotFoundError:
        return  # at this level NCCL had nothing to say
    except OSError as error:
        raise StoreError(f"cannot move {path} into {folder}: {error.strerror}") from error


def _begun(trace_dir: Path, rank: int) -> Path:
    return trace_dir / f"nccl.rank{rank}.{os.getpid()}.log"
