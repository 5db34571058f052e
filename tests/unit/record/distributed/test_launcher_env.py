from collections.abc import Mapping

import pytest

from perfkit.errors import LaunchEnvironmentError
from perfkit.record.distributed.known_launchers import find_launcher, is_among_mpi_ranks, is_rank_above_0
from perfkit.record.distributed.launcher_env import MpiView, RankInfo, detect_rank, expand_tasks_per_node, needs_mpi

TORCHRUN = {
    "TORCHELASTIC_RUN_ID": "none",
    "RANK": "5",
    "WORLD_SIZE": "8",
    "LOCAL_RANK": "1",
    "LOCAL_WORLD_SIZE": "4",
    "GROUP_RANK": "1",
}
HYDRA = {"PMI_RANK": "1", "PMI_SIZE": "2", "MPI_LOCALRANKID": "1", "MPI_LOCALNRANKS": "2", "PMI_FD": "7"}
OPENMPI = {
    "OMPI_COMM_WORLD_RANK": "3",
    "OMPI_COMM_WORLD_SIZE": "4",
    "OMPI_COMM_WORLD_LOCAL_RANK": "1",
    "OMPI_COMM_WORLD_LOCAL_SIZE": "2",
    "PMIX_RANK": "3",
}
SLURM = {
    "SLURM_STEP_ID": "0",
    "SLURM_PROCID": "6",
    "SLURM_NTASKS": "7",
    "SLURM_LOCALID": "0",
    "SLURM_NODEID": "3",
    "SLURM_STEP_TASKS_PER_NODE": "2(x3),1",
}
PALS = {
    "PALS_RANKID": "13",
    "PMI_RANK": "13",
    "PMI_SIZE": "24",
    "PALS_LOCAL_RANKID": "1",
    "PALS_LOCAL_SIZE": "12",
    "PALS_NODEID": "1",
}
PALS_PMI = {"PALS_APID": "a", "PMI_RANK": "13", "PMI_SIZE": "24", "PMI_LOCAL_RANK": "1", "PMI_LOCAL_SIZE": "12"}
PALS_PMIX = {"PALS_APID": "a", "PMIX_RANK": "13", "PALS_LOCAL_RANKID": "1", "PALS_LOCAL_SIZE": "12"}
CHILD = {
    "PERFKIT_RENDEZVOUS": "/tmp/x",
    "RANK": "1",
    "WORLD_SIZE": "2",
    "LOCAL_RANK": "1",
    "LOCAL_WORLD_SIZE": "2",
}
BATCH_JOB = {"SLURM_JOB_ID": "7", "SLURM_PROCID": "0", "SLURM_NTASKS": "8", "SLURM_LOCALID": "0"}


@pytest.mark.parametrize(
    ("environment", "launcher", "place", "node"),
    [
        ({}, "none", (0, 1, 0, 1), None),
        (TORCHRUN, "torchrun", (5, 8, 1, 4), 1),
        (HYDRA, "hydra", (1, 2, 1, 2), None),
        (OPENMPI, "openmpi", (3, 4, 1, 2), None),
        (SLURM, "slurm", (6, 7, 0, 1), 3),
        (PALS, "pals", (13, 24, 1, 12), 1),
        (PALS_PMI, "pals", (13, 24, 1, 12), None),
        (CHILD, "perfkit", (1, 2, 1, 2), None),
        (BATCH_JOB, "none", (0, 1, 0, 1), None),
        # hydra starts its own daemons with srun: its ranks see the daemon's Slurm variables.
        ({**SLURM, "SLURM_PROCID": "0", "SLURM_NTASKS": "2", **HYDRA}, "hydra", (1, 2, 1, 2), None),
        # srun --mpi=pmi2
        ({**SLURM, "PMI_RANK": "6", "PMI_SIZE": "7"}, "slurm", (6, 7, 0, 1), 3),
        # one torchrun a node, started by an MPI launcher
        ({**HYDRA, **TORCHRUN}, "torchrun", (5, 8, 1, 4), 1),
        ({**BATCH_JOB, **OPENMPI}, "openmpi", (3, 4, 1, 2), None),
    ],
)
def test_places(
    environment: Mapping[str, str], launcher: str, place: tuple[int, int, int, int], node: int | None
) -> None:
    info = detect_rank(environment)
    assert info.launcher == launcher
    assert (info.rank, info.world_size, info.local_rank, info.local_world_size) == place
    assert info.node_rank == node


def test_the_size_that_only_mpi_knows() -> None:
    info = detect_rank(PALS_PMIX, MpiView(13, 24))
    assert (info.launcher, info.rank, info.world_size, info.local_world_size) == ("pals", 13, 24, 12)
    with pytest.raises(LaunchEnvironmentError, match=r"PMIX_RANK=13.*PMI_SIZE is not set.*mpi4py"):
        detect_rank(PALS_PMIX)


@pytest.mark.parametrize(
    ("environment", "message"),
    [
        ({"RANK": "0"}, r"RANK=0.*WORLD_SIZE is not set"),
        ({"RANK": "0", "WORLD_SIZE": "2", "LOCAL_RANK": "0"}, "LOCAL_WORLD_SIZE is not set"),
        ({"PMI_RANK": "0", "PMI_SIZE": "2"}, "MPI_LOCALNRANKS is not set"),
        ({**OPENMPI, "OMPI_COMM_WORLD_RANK": "4"}, r"contradict.*OMPI_COMM_WORLD_RANK=4.*OMPI_COMM_WORLD_SIZE=4"),
        ({**OPENMPI, "OMPI_COMM_WORLD_LOCAL_RANK": "2"}, "contradict.*OMPI_COMM_WORLD_LOCAL_RANK=2"),
        ({**HYDRA, "PMI_SIZE": "two"}, "PMI_SIZE=two is not a number"),
        ({**SLURM, "SLURM_NODEID": "4"}, r"SLURM_STEP_TASKS_PER_NODE=2\(x3\),1 and SLURM_NODEID=4"),
        ({**SLURM, "SLURM_STEP_TASKS_PER_NODE": "2x3"}, "SLURM_STEP_TASKS_PER_NODE=2x3 cannot be parsed"),
        # exported by hand and forgotten
        (
            {**HYDRA, "RANK": "0", "WORLD_SIZE": "4", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "4"},
            r"torchrun \(RANK=0, WORLD_SIZE=4.*hydra \(PMI_RANK=1, PMI_SIZE=2",
        ),
    ],
)
def test_contradictions_are_refused(environment: Mapping[str, str], message: str) -> None:
    with pytest.raises(LaunchEnvironmentError, match=message):
        detect_rank(environment)


def test_mpi_must_agree() -> None:
    assert detect_rank(HYDRA, MpiView(1, 2)).rank == 1
    with pytest.raises(
        LaunchEnvironmentError, match=r"this is rank 1 of 2 according to hydra .* rank 0 of 1 according to mpi4py"
    ):
        detect_rank(HYDRA, MpiView(0, 1))
    # srun without MPI: every process is rank 0 of 1 of its own
    assert detect_rank({**SLURM, "PMIX_RANK": "6"}, MpiView(0, 1)).world_size == 7


def test_when_mpi_is_asked() -> None:
    assert needs_mpi(HYDRA)
    assert needs_mpi(OPENMPI)
    assert needs_mpi(PALS_PMIX)
    assert needs_mpi({**SLURM, "PMIX_RANK": "6"})
    assert not needs_mpi(SLURM)
    assert not needs_mpi(TORCHRUN)
    assert not needs_mpi({})


def test_tasks_per_node() -> None:
    assert expand_tasks_per_node("2(x3),1") == [2, 2, 2, 1]
    assert expand_tasks_per_node("4") == [4]


def test_single_host() -> None:
    assert detect_rank(HYDRA).single_host
    assert not detect_rank(SLURM).single_host
    assert RankInfo().single_host
    assert find_launcher({}) is None


def test_what_is_known_without_reading_a_launcher_s_variables_as_numbers() -> None:
    assert all(is_rank_above_0(one) for one in (TORCHRUN, HYDRA, OPENMPI, SLURM, PALS))
    assert not is_rank_above_0({})
    assert not is_rank_above_0({**HYDRA, "PMI_RANK": "0"})
    assert all(is_among_mpi_ranks(one) for one in (HYDRA, OPENMPI, PALS))
    assert not any(is_among_mpi_ranks(one) for one in ({}, TORCHRUN, SLURM, {**HYDRA, "PMI_SIZE": "1"}))
    assert not is_among_mpi_ranks({"PMI_SIZE": "many"})
