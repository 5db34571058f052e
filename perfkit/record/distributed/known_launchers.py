"""The launchers of distributed training, and the environment variables that each sets for its ranks.

Imported at every start of the command line: it imports next to nothing itself.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

RENDEZVOUS_VARIABLE: Final = "PERFKIT_RENDEZVOUS"
"""Path of the file through which the ranks that `perfkit run -n` starts find each other."""

Environment = Mapping[str, str]


class Launcher(NamedTuple):
    """The environment variables of a launcher; of several names for one value, the first that is set is used."""

    name: str
    markers: tuple[str, ...]
    """Any of them indicates this launcher."""
    rank: tuple[str, ...]
    size: tuple[str, ...]
    local_rank: tuple[str, ...]
    local_size: tuple[str, ...]
    unless: tuple[str, ...] = ()
    """Any of them rules this launcher out."""
    node: tuple[str, ...] = ()
    mpi: bool = False
    """Whether its processes are MPI ranks, so that mpi4py can be asked."""


LAUNCHERS: Final = (
    Launcher(
        name="perfkit",
        markers=(RENDEZVOUS_VARIABLE,),
        rank=("RANK",),
        size=("WORLD_SIZE",),
        local_rank=("LOCAL_RANK",),
        local_size=("LOCAL_WORLD_SIZE",),
    ),
    Launcher(
        name="torchrun",
        markers=("TORCHELASTIC_RUN_ID", "RANK", "WORLD_SIZE"),
        rank=("RANK",),
        size=("WORLD_SIZE",),
        local_rank=("LOCAL_RANK",),
        local_size=("LOCAL_WORLD_SIZE",),
        node=("GROUP_RANK",),
    ),
    Launcher(
        name="openmpi",
        markers=("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
        rank=("OMPI_COMM_WORLD_RANK",),
        size=("OMPI_COMM_WORLD_SIZE",),
        local_rank=("OMPI_COMM_WORLD_LOCAL_RANK",),
        local_size=("OMPI_COMM_WORLD_LOCAL_SIZE",),
        mpi=True,
    ),
    Launcher(
        name="pals",
        markers=("PALS_RANKID", "PALS_LOCAL_RANKID", "PALS_APID", "PMI_LOCAL_RANK"),
        unless=("SLURM_STEP_ID",),
        rank=("PALS_RANKID", "PMI_RANK", "PMIX_RANK"),
        size=("PALS_SIZE", "PMI_SIZE"),
        local_rank=("PALS_LOCAL_RANKID", "PMI_LOCAL_RANK"),
        local_size=("PALS_LOCAL_SIZE", "PMI_LOCAL_SIZE"),
        node=("PALS_NODEID",),
        mpi=True,
    ),
    Launcher(
        name="hydra",
        markers=("MPI_LOCALRANKID",),
        rank=("PMI_RANK",),
        size=("PMI_SIZE",),
        local_rank=("MPI_LOCALRANKID",),
        local_size=("MPI_LOCALNRANKS",),
        mpi=True,
    ),
    Launcher(
        name="hydra",
        markers=("PMI_RANK", "PMI_SIZE"),
        unless=("SLURM_STEP_ID",),
        rank=("PMI_RANK",),
        size=("PMI_SIZE",),
        local_rank=("MPI_LOCALRANKID",),
        local_size=("MPI_LOCALNRANKS",),
        mpi=True,
    ),
    Launcher(
        name="slurm",
        markers=("SLURM_STEP_ID",),
        rank=("SLURM_PROCID",),
        size=("SLURM_NTASKS", "SLURM_STEP_NUM_TASKS"),
        local_rank=("SLURM_LOCALID",),
        local_size=("SLURM_STEP_TASKS_PER_NODE",),
        node=("SLURM_NODEID",),
    ),
)


def find_launcher(environment: Environment) -> Launcher | None:
    """Return the row of LAUNCHERS that started this process; None if it was started alone."""
    for launcher in LAUNCHERS:
        if is_present(launcher, environment):
            return launcher
    return None


def is_among_mpi_ranks(environment: Environment) -> bool:
    """Return whether an MPI launcher has started this process beside others."""
    sizes = [environment.get(name, "") for launcher in LAUNCHERS if launcher.mpi for name in launcher.size]
    return any(size.isdecimal() and int(size) > 1 for size in sizes)


def is_rank_above_0(environment: Environment) -> bool:
    """Return whether any launcher, or `perfkit run -n`, gives this process a rank other than 0."""
    return any(environment.get(name, "0") != "0" for launcher in LAUNCHERS for name in launcher.rank)


def is_present(launcher: Launcher, environment: Environment) -> bool:
    """Return whether the variables of this launcher are set, and none that rules it out."""
    return is_set(environment, launcher.markers) and not is_set(environment, launcher.unless)


def is_set(environment: Environment, names: tuple[str, ...]) -> bool:
    """Return whether any of the variables is set, and not empty."""
    return any(environment.get(name) for name in names)
