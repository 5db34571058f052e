"""The variables that a script's rank gets where its launcher sets none."""

import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from torch.distributed import TCPStore  # type: ignore[attr-defined]

from perfkit.record.distributed.known_launchers import LAUNCHERS
from perfkit.record.distributed.launch_id import launch_id
from perfkit.record.distributed.launcher_env import RankInfo
from perfkit.record.script import rank_environment
from perfkit.record.script.rank_environment import VARIABLES, launcher_environment, launcher_rank, set_rank_environment

LIMIT_NS = 300 * 10**9
ALL_VARIABLES = (*VARIABLES, "LOCAL_RANK", "LOCAL_WORLD_SIZE")
LAUNCHER = {launcher.name: launcher for launcher in LAUNCHERS}
TWO_HOSTS = RankInfo(rank=0, world_size=2, local_world_size=1)


@pytest.fixture(autouse=True)
def only_this_test(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Give the test an environment of its own, and no state of another test."""
    for name in list(os.environ):
        if name in ALL_VARIABLES or name.startswith(("PMI", "MPI_", "OMPI_", "PALS_", "SLURM_", "TORCHELASTIC_")):
            monkeypatch.delenv(name)
    for name in ALL_VARIABLES:  # so that what is set here is removed again
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    monkeypatch.setattr(rank_environment, "_variables_set", set())
    held: list[int] = []
    monkeypatch.setattr(rank_environment, "_reserved_sockets", held)
    yield
    for each in held:
        os.close(each)


def as_task(monkeypatch: pytest.MonkeyPatch, rank: int) -> None:
    task = {"SLURM_JOB_ID": "7", "SLURM_STEP_ID": "0", "SLURM_NTASKS": "2", "SLURM_STEP_TASKS_PER_NODE": "2"}
    for name, value in (task | {"SLURM_PROCID": str(rank), "SLURM_LOCALID": str(rank), "SLURM_NODEID": "0"}).items():
        monkeypatch.setenv(name, value)


def values() -> list[str | None]:
    return [os.environ.get(name) for name in ALL_VARIABLES]


def test_ranks_get_the_same_address_and_the_launcher_is_still_detected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    as_task(monkeypatch, 0)
    set_rank_environment(tmp_path, LIMIT_NS)
    port = os.environ["MASTER_PORT"]
    assert values() == ["0", "2", "127.0.0.1", port, "0", "2"]
    assert launcher_rank().launcher == "slurm"
    assert not set(ALL_VARIABLES) & launcher_environment().keys()
    for name in ALL_VARIABLES:
        monkeypatch.delenv(name)
    as_task(monkeypatch, 1)
    set_rank_environment(tmp_path, LIMIT_NS)
    assert values() == ["1", "2", "127.0.0.1", port, "1", "2"]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", VARIABLES)
def test_one_variable_of_the_users_leaves_all_to_the_user(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    as_task(monkeypatch, 0)
    monkeypatch.setenv(name, "0")
    before = dict(os.environ)
    set_rank_environment(tmp_path, LIMIT_NS)
    assert dict(os.environ) == before
    assert list(tmp_path.iterdir()) == []


def test_a_single_rank_gets_no_variables(tmp_path: Path) -> None:
    set_rank_environment(tmp_path, LIMIT_NS)
    assert values() == [None] * len(ALL_VARIABLES)


def test_a_folder_that_rank_0_cannot_write_is_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    as_task(monkeypatch, 0)
    (tmp_path / "file").touch()
    set_rank_environment(tmp_path / "file", LIMIT_NS)
    assert values() == [None] * len(ALL_VARIABLES)
    assert capsys.readouterr().err.startswith("perfkit: warning: ")


@pytest.mark.parametrize("use_libuv", [True, False])
def test_only_the_store_of_torch_can_listen_on_the_reserved_port(use_libuv: bool) -> None:
    port = rank_environment._reserve_port()
    with socket.socket() as other, pytest.raises(OSError, match="in use"):
        other.bind(("127.0.0.1", port))
    server = TCPStore("127.0.0.1", port, 2, True, wait_for_workers=False, use_libuv=use_libuv)
    client = TCPStore("127.0.0.1", port, 2, False, wait_for_workers=False)
    client.set("key", "value")
    assert server.get("key") == b"value"


def test_launches_on_several_hosts_are_identified_if_the_launcher_does(monkeypatch: pytest.MonkeyPatch) -> None:
    assert launch_id(LAUNCHER["hydra"], TWO_HOSTS) is None
    assert launch_id(LAUNCHER["openmpi"], TWO_HOSTS) is None
    monkeypatch.setenv("PMIX_NAMESPACE", "prterun-node/1@1")
    assert launch_id(LAUNCHER["openmpi"], TWO_HOSTS) == "prterun-node-1@1"
    monkeypatch.setenv("PALS_APID", "a-b")
    assert launch_id(LAUNCHER["pals"], TWO_HOSTS) == "a-b"
