"""Environment variables that torch and NCCL read once, before a process group is created; without torch.

NCCL's own log (`--nccl-debug`) is one file per rank in the run's folder. NCCL opens it when the process group is
created, before that folder exists. So the file is created in the trace folder and moved later; NCCL continues to write
to the moved file.
"""

import os
import secrets
from pathlib import Path
from typing import Final

from perfkit.errors import StoreError
from perfkit.options.run import NcclLevel

_FLIGHT_RECORDER_ENTRIES: Final = 10_000
"""A ring buffer, large enough for the collectives of one cycle; torch's own size is 2,000.

It grows until it is full, by about 1.3 kB per collective, most of it the Python stack: to 13 MB in each rank.
"""

_FILE: Final = "NCCL_DEBUG_FILE"


def enlarge_flight_recorder() -> None:
    """Let torch's flight recorder keep the collectives of a whole cycle, unless the user has set its size.

    For runs that are to record traces: others need not have the memory.
    """
    os.environ.setdefault("TORCH_FR_BUFFER_SIZE", str(_FLIGHT_RECORDER_ENTRIES))


def request_log(level: NcclLevel, trace_dir: Path, rank: int) -> None:
    """Let NCCL log into `trace_dir`, where the log stays if the ranks cannot connect; call it before they do.

    Raises:
        StoreError: The folder cannot be created.
    """
    try:
        trace_dir.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StoreError(f"cannot create {trace_dir}: {error.strerror}: choose another --trace-dir") from error
    os.environ["NCCL_DEBUG"] = level.upper()
    # A random name: NCCL would follow a link that another user has left there.
    name = f"nccl.rank{rank}.{secrets.token_hex(16)}.log"
    os.environ[_FILE] = str((trace_dir / name).absolute())


def collect_log(folder: Path, rank: int) -> None:
    """Move the requested log into the run's folder, as `rank<R>.nccl.log`; NCCL continues to write to it.

    Raises:
        StoreError: It cannot be moved.
    """
    path = Path(os.environ[_FILE])
    try:
        path.rename(folder / f"rank{rank}.nccl.log")
    except FileNotFoundError:
        return  # at this level NCCL has logged nothing
    except OSError as error:
        raise StoreError(f"cannot move {path} into {folder}: {error.strerror}") from error
