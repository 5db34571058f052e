"""Training jobs whose delays are known: what `delayed_training.py` runs and the straggler bench judges.

Times are in seconds. A step of a job lasts about `STEP_S` without its delay.
"""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal

STEP_S: Final = 0.12
Phase = Literal["data", "forward", "backward", "optimizer"]
PHASES: Final[tuple[Phase, ...]] = ("data", "forward", "backward", "optimizer")
SHARES: Final = (0.05, 0.1, 0.2, 0.4)
"""Delays, as shares of the step."""
STEPS: Final = (3, 5, 10)
BUCKETS: Final = ((6, 5.0), (6, 0.2), (12, 0.1))
"""Layers, and DDP's bucket size in MB: one bucket, three, and six."""


@dataclass(frozen=True, kw_only=True)
class Delay:
    """What holds ranks back."""

    ranks: tuple[int, ...]
    phase: Phase
    seconds: float
    computing: bool = False
    """Whether the operators take longer; otherwise the host sleeps between them."""
    every: int = 1
    """Only in every n-th step."""
    in_turns: bool = False
    """Whether all ranks take turns, one per step."""


@dataclass(frozen=True, kw_only=True)
class Job:
    """One recorded training run."""

    name: str
    steps: int
    layers: int
    bucket_mb: float
    jitter: float
    """Standard deviation of a layer's time, relative to it; each rank's own."""
    host_jitter_s: float = 0.0
    """Standard deviation of a pause between steps, of which the positive half is taken; each rank's own."""
    delay: Delay | None = None
    seed: int = field(default=0)


def write_core_waits(folder: Path, rank: int, waits_ns: Sequence[int]) -> None:
    """Write how long a rank waited for a core in each recorded step."""
    _core_waits(folder, rank).write_text(" ".join(map(str, waits_ns)))


def read_core_waits(folder: Path, ranks: int) -> list[list[int]]:
    """Return what `write_core_waits` wrote, by rank and step; empty if nothing was written."""
    files = [_core_waits(folder, rank) for rank in range(ranks)]
    if not all(file.exists() for file in files):
        return []
    return [[int(wait) for wait in file.read_text().split()] for file in files]


def _core_waits(folder: Path, rank: int) -> Path:
    return folder / f"rank{rank}.core-waits"  # not .json: not a trace


def make_jobs(ranks: int, count: int, seed: int) -> list[Job]:
    """Return about `count` jobs: half with a delay, of every size, phase and kind, and half without."""
    draw = random.Random(seed)  # noqa: S311 - no secret
    delayed = list(_delays(ranks, draw, count // 2))
    jobs = [_job(f"delayed-{number}", draw, 0.03, delay) for number, delay in enumerate(delayed)]
    for number in range(count - len(jobs)):
        jitter = (0.02, 0.05, 0.15)[number % 3]
        jobs.append(_job(f"quiet-{number}", draw, jitter, None, 0.005 * (number // 3 % 2)))
    draw.shuffle(jobs)
    return jobs


def _job(name: str, draw: random.Random, jitter: float, delay: Delay | None, host_jitter_s: float = 0.0) -> Job:
    layers, bucket_mb = draw.choice(BUCKETS)
    often = delay is None or (delay.every == 1 and not delay.in_turns)
    steps = draw.choice(STEPS if often else (6, 9, 12))
    seed = draw.randrange(1 << 30)
    return Job(
        name=name,
        steps=steps,
        layers=layers,
        bucket_mb=bucket_mb,
        jitter=jitter,
        host_jitter_s=host_jitter_s,
        delay=delay,
        seed=seed,
    )


def _delays(ranks: int, draw: random.Random, count: int) -> Iterator[Delay]:
    """Yield the delays; of twelve, two slow the operators, one comes every third step and one goes round."""
    for number in range(count):
        kind, share = number % 12, SHARES[number // 12 % len(SHARES)]
        rank, phase = draw.randrange(ranks), PHASES[number % len(PHASES)]
        if kind in (4, 5):
            half: tuple[Phase, ...] = ("forward", "backward")
            yield Delay(ranks=(rank,), phase=half[kind - 4], seconds=share * STEP_S, computing=True)
        elif kind == 6:
            yield Delay(ranks=(rank,), phase=phase, seconds=max(share, 0.2) * STEP_S, every=3)
        elif kind == 7:
            yield Delay(ranks=(), phase=phase, seconds=max(share, 0.2) * STEP_S, in_turns=True)
        elif kind == 8 and ranks > 2:
            pair = tuple(sorted(draw.sample(range(ranks), 2)))
            yield Delay(ranks=pair, phase=phase, seconds=share * STEP_S)
        else:
            yield Delay(ranks=(rank,), phase=phase, seconds=share * STEP_S)
