"""Makes the step logs of runs whose steps are known: without training, and for any number of ranks."""

import zlib
from pathlib import Path

import msgspec
import numpy as np
from numpy.typing import NDArray

from perfkit.records.monitor import CHECK, COLUMNS, HEADER_BYTES, STEP_DTYPE, UNKNOWN, StepLogHeader

Records = NDArray[np.void]
Floats = NDArray[np.float64]
COLLECTIVE_NS = 2e6
DATA_NS = 1e6
BEGIN_NS = 1_700_000_000_000_000_000


def own_times(ranks: int, steps: int, *, noise: float = 0.02, seed: int = 0) -> Floats:
    """Return own times of 50 ms with normal noise, shape (ranks, steps)."""
    own: Floats = 50e6 * (1 + noise * np.random.default_rng(seed).standard_normal((ranks, steps)))
    return own


def eventful_times(ranks: int, steps: int = 10_000) -> Floats:
    """Return own times in which the last rank is 20 % slower from step 6,000 on, all ranks stall for 300 ms in every
    500th step, and rank 0 takes five times as long in steps 1,234, 4,321 and 8,888."""
    own = own_times(ranks, steps)
    own[-1, 6000:] *= 1.2
    own[:, 500::500] += 300e6
    own[0, [1234, 4321, 8888]] *= 5
    return own


def records(own: Floats, rank: int, wall: Floats | None = None) -> Records:
    """Return the records of a rank of a run whose ranks wait for the slowest in every step.

    `wall` is the time of each step, if it has been computed already.
    """
    wall = own.max(axis=0) + COLLECTIVE_NS if wall is None else wall
    made = np.zeros(own.shape[1], STEP_DTYPE)
    for column in COLUMNS:
        made[column.name] = {"never": 0, "-1": UNKNOWN, "NaN": np.nan}[column.unknown]
    made["steps"], made["kind"] = 1, 1
    made["step"] = made["longest_step"] = np.arange(own.shape[1])
    made["step_ns"] = made["longest_ns"] = wall.astype(np.int64)
    made["collective_ns"] = (wall - own[rank]).astype(np.int64)
    made["data_ns"] = int(DATA_NS)
    made["begin_ns"] = BEGIN_NS + np.concatenate([[0], np.cumsum(wall[:-1])]).astype(np.int64)
    return made


def write_log(folder: Path, rank: int, world_size: int, made: Records, *, generation: int = 0) -> Path:
    """Write the log of a rank."""
    header = StepLogHeader(
        generation=generation,
        log_id="made",
        rank=rank,
        world_size=world_size,
        host=f"host{rank // 8}",
        pid=1,
        started_ns=BEGIN_NS,
        device="cpu",
        record_bytes=STEP_DTYPE.itemsize,
        most_bytes=1 << 26,
        columns=list(COLUMNS),
    )
    path = folder / f"rank{rank}.steps"
    path.write_bytes(msgspec.json.encode(header).ljust(HEADER_BYTES - 1) + b"\n" + with_checks(made))
    return path


def write_run(folder: Path, own: Floats) -> Path:
    """Write the logs of all ranks of a run."""
    folder.mkdir(parents=True, exist_ok=True)
    wall = own.max(axis=0) + COLLECTIVE_NS
    for rank in range(len(own)):
        write_log(folder, rank, len(own), records(own, rank, wall))
    return folder


def with_checks(made: Records) -> bytes:
    """Return the bytes of records, each with its check."""
    checked, size = made.copy(), STEP_DTYPE.itemsize
    data = made.tobytes()
    checked[CHECK] = [zlib.crc32(data[at + 4 : at + size]) for at in range(0, len(data), size)]
    return checked.tobytes()
