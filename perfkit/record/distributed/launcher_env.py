"""Detects this process's rank: the launcher's environment variables -> RankInfo. Pure, without torch or MPI.

The first row of `known_launchers.LAUNCHERS` with a marker in the environment wins. Two pitfalls: inside a Slurm batch
job every process inherits `SLURM_PROCID=0`, so Slurm counts only in a step (`SLURM_STEP_ID`) whose processes were not
started by an MPI launcher; and under Aurora's PALS with PMIx the environment has only the rank, so that MPI must be
asked for the size.
"""

import re
from typing import Final, NamedTuple

from msgspec import Struct

from perfkit.base.formatting import install_extra
from perfkit.errors import LaunchEnvironmentError
from perfkit.record.distributed.known_launchers import (
    LAUNCHERS,
    Environment,
    Launcher,
    find_launcher,
    is_present,
    is_set,
)

FAILURE_GRACE_S: Final = 2.0
"""How long a rank waits before it exits because of another rank's error, so that the error is reported first."""


class RankInfo(Struct, frozen=True, kw_only=True):
    """This process's place among the ranks."""

    rank: int = 0
    world_size: int = 1
    local_rank: int = 0
    local_world_size: int = 1
    node_rank: int | None = None
    """None if the launcher does not set it; nodes are then told apart by host name."""
    launcher: str = "none"

    @property
    def single_host(self) -> bool:
        return self.local_world_size == self.world_size


class MpiView(NamedTuple):
    """Rank and size according to MPI itself."""

    rank: int
    size: int


def detect_rank(environment: Environment, mpi: MpiView | None = None) -> RankInfo:
    """Find this process's place among the ranks.

    Args:
        mpi: Rank and size from mpi4py, if it was asked (see `needs_mpi`); checked against the environment.

    Returns:
        The place; rank 0 of 1 if there is no launcher.

    Raises:
        LaunchEnvironmentError: Variables of the launcher are missing, not numbers, or contradict each other.
    """
    launcher = find_launcher(environment)
    if launcher is None:
        return RankInfo()
    info = _read(launcher, environment, mpi)
    _check_ranges(launcher, environment, info)
    _check_outer_launchers(launcher, environment, info)
    if mpi is not None:
        _check_mpi(launcher, environment, info, mpi)
    return info


def needs_mpi(environment: Environment) -> bool:
    """Return whether MPI should be asked: the launcher is an MPI launcher, or srun with PMI or PMIx."""
    launcher = find_launcher(environment)
    if launcher is None:
        return False
    srun_with_mpi = launcher.name == "slurm" and is_set(environment, ("PMI_RANK", "PMIX_RANK"))
    return launcher.mpi or srun_with_mpi


def _read(launcher: Launcher, environment: Environment, mpi: MpiView | None) -> RankInfo:
    node = _number(environment, launcher.node) if is_set(environment, launcher.node) else None
    if mpi is not None and not is_set(environment, launcher.size):
        size = mpi.size
    else:
        size = _required(launcher, environment, launcher.size)
    if launcher.name == "slurm":
        local_size = _slurm_local_size(launcher, environment, node or 0)
    else:
        local_size = _required(launcher, environment, launcher.local_size)
    return RankInfo(
        rank=_required(launcher, environment, launcher.rank),
        world_size=size,
        local_rank=_required(launcher, environment, launcher.local_rank),
        local_world_size=local_size,
        node_rank=node,
        launcher=launcher.name,
    )


def _required(launcher: Launcher, environment: Environment, names: tuple[str, ...]) -> int:
    if not is_set(environment, names):
        hint = ""
        if names == launcher.size and launcher.mpi:
            hint = f", or install mpi4py, which gets it from MPI ({install_extra('mpi')})"
        raise LaunchEnvironmentError(
            f"{launcher.name} seems to have started this process ({_show_variables(launcher, environment)}), "
            f"but {' or '.join(names)} is not set: start all ranks with one launcher{hint}"
        )
    return _number(environment, names)


def _number(environment: Environment, names: tuple[str, ...]) -> int:
    name = next(name for name in names if environment.get(name))
    if not environment[name].isdecimal():
        raise LaunchEnvironmentError(f"{name}={environment[name]} is not a number: unset it")
    return int(environment[name])


def _slurm_local_size(launcher: Launcher, environment: Environment, node: int) -> int:
    name = launcher.local_size[0]
    if not environment.get(name):
        return _required(launcher, environment, launcher.local_size)
    counts = expand_tasks_per_node(environment[name])
    if node >= len(counts):
        raise LaunchEnvironmentError(
            f"{name}={environment[name]} and SLURM_NODEID={node} contradict each other: start the ranks with srun"
        )
    return counts[node]


def expand_tasks_per_node(text: str) -> list[int]:
    """Return the number of tasks of each node from Slurm's notation: `2(x3),1` is `[2, 2, 2, 1]`.

    Raises:
        LaunchEnvironmentError: It is not in that notation.
    """
    counts: list[int] = []
    for part in text.split(","):
        match = re.fullmatch(r"(\d+)(?:\(x(\d+)\))?", part.strip())
        if match is None:
            raise LaunchEnvironmentError(
                f"SLURM_STEP_TASKS_PER_NODE={text} cannot be parsed: expected a form like 2(x3),1"
            )
        counts += [int(match[1])] * int(match[2] or 1)
    return counts


def _check_ranges(launcher: Launcher, environment: Environment, info: RankInfo) -> None:
    consistent = (
        info.rank < info.world_size
        and info.local_rank < info.local_world_size
        and info.local_rank <= info.rank
        and info.local_world_size <= info.world_size
    )
    if not consistent:
        raise LaunchEnvironmentError(
            f"the variables of {launcher.name} contradict each other: "
            f"{_show_variables(launcher, environment)}: unset the stale ones"
        )


def _check_outer_launchers(launcher: Launcher, environment: Environment, info: RankInfo) -> None:
    """Compare with a second launcher: one torchrun per node under mpiexec is fine, stale variables are not."""
    if environment.get("TORCHELASTIC_RUN_ID") or launcher.name == "perfkit":
        return
    for other in LAUNCHERS:
        if other.name == launcher.name or not is_present(other, environment):
            continue
        if not (is_set(environment, other.rank) and is_set(environment, other.size)):
            continue
        seen = _number(environment, other.rank), _number(environment, other.size)
        stale_slurm = other.name == "slurm"  # hydra starts its daemons with srun
        if seen[1] > 1 and seen != (info.rank, info.world_size) and not stale_slurm:
            raise LaunchEnvironmentError(
                f"{launcher.name} ({_show_variables(launcher, environment)}) and {other.name} "
                f"({_show_variables(other, environment)}) contradict each other: unset the variables of one of them"
            )


def _check_mpi(launcher: Launcher, environment: Environment, info: RankInfo, mpi: MpiView) -> None:
    if (mpi.rank, mpi.size) != (info.rank, info.world_size) and launcher.mpi:
        raise LaunchEnvironmentError(
            f"this is rank {info.rank} of {info.world_size} according to {launcher.name} "
            f"({_show_variables(launcher, environment)}), but rank {mpi.rank} of {mpi.size} according to mpi4py, which "
            "loads another MPI than the launcher's: use the mpiexec of its MPI, or torchrun"
        )


def _show_variables(launcher: Launcher, environment: Environment) -> str:
    names = dict.fromkeys(
        name
        for group in (
            launcher.rank,
            launcher.size,
            launcher.local_rank,
            launcher.local_size,
            launcher.markers,
        )
        for name in group
        if environment.get(name)
    )
    return ", ".join(f"{name}={environment[name]}" for name in names)
