"""The contract of `RankGroup`, over each of its implementations: alone, and as one of two ranks."""

import subprocess
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.distributed import HashStore, Store  # type: ignore[attr-defined]

from perfkit.errors import StoreError
from perfkit.record.distributed.launcher_env import RankInfo
from perfkit.record.distributed.rank_group import ProcessRankGroup, RankGroup, backend_of
from perfkit.record.recording.recording import Recording
from perfkit.record.script.coordination import ScriptRankGroup
from perfkit.record.script.rank_marks import mark_joined
from perfkit.records.manifest import Failure
from perfkit.storage.run_folder import claim_failure

CPU = torch.device("cpu")
TIMEOUT = timedelta(seconds=120)

Make = Callable[[], RankGroup]


def process_ranks() -> RankGroup:
    return ProcessRankGroup(CPU)


def script_ranks(rank: int = 0, size: int = 1, store: Store | None = None, barriers: int = 2) -> ScriptRankGroup:
    info = RankInfo(rank=rank, world_size=size, local_rank=rank, local_world_size=size)
    return ScriptRankGroup(info, None, store, barriers, TIMEOUT)


@pytest.mark.parametrize("make", [process_ranks, script_ranks])
class TestOneRank:
    def test_it_is_rank_0_of_1(self, make: Make) -> None:
        ranks = make()
        assert (ranks.rank, ranks.world_size) == (0, 1)

    def test_the_activity_can_be_set(self, make: Make) -> None:
        ranks = make()
        assert isinstance(ranks.current_activity, str)
        ranks.current_activity = "step 1"
        assert ranks.current_activity == "step 1"

    def test_an_action_runs_and_its_result_is_returned(self, make: Make) -> None:
        assert make().run_on_all(lambda: 3) == 3

    def test_an_error_of_the_action_is_raised(self, make: Make) -> None:
        def action() -> None:
            raise StoreError("the disk is full")

        with pytest.raises(StoreError, match="the disk is full"):
            make().run_on_all(action)

    def test_every_public_method_works(self, make: Make) -> None:
        """No method that is inherited fails for an attribute that was never set."""
        ranks = make()
        arguments: dict[str, tuple[Any, ...]] = {
            "all_gather": (1,),
            "broadcast": (1,),
            "run_on_all": (int,),
            "run_on": (True, int),
            "agree_on_folder": (lambda: Path("run"),),
        }
        methods = [name for name in dir(ranks) if not name.startswith("_") and callable(getattr(ranks, name))]
        results = {}
        for name in sorted(methods, key="close".__eq__):
            results[name] = getattr(ranks, name)(*arguments.get(name, ()))
        expected = {"all_gather": [1], "broadcast": 1, "run_on_all": 0, "run_on": 0, "agree_on_folder": Path("run")}
        assert {name: result for name, result in results.items() if result is not None} == {
            name: value for name, value in expected.items() if name in methods
        }

    def test_a_session_takes_it(self, make: Make, tmp_path: Path) -> None:
        session = Recording(make(), CPU, tmp_path, None)
        session.begin()
        session.step()
        session.end()
        assert session.kinds == ["cold"]


def _in_two_processes(check: Callable[[RankGroup], Any], folder: Path) -> list[Any]:
    context = get_context("spawn")
    with context.Pool(2) as pool:
        return pool.starmap(_as_process_rank, [(check, rank, folder) for rank in range(2)])


def _as_process_rank(check: Callable[[RankGroup], Any], rank: int, folder: Path) -> Any:
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=2, timeout=TIMEOUT)
    try:
        ranks = ProcessRankGroup(CPU, TIMEOUT)
        result = check(ranks)
        ranks.close()
    finally:
        dist.destroy_process_group()
    return result


def _in_two_threads(check: Callable[[RankGroup], Any], _: Path) -> list[Any]:
    store = HashStore()
    with ThreadPoolExecutor(2) as pool:
        return list(pool.map(lambda rank: check(script_ranks(rank, 2, store)), range(2)))


# Two processes that import torch take 8 s; every run of two ranks in `make test` meets at barriers.
PROCESSES = pytest.param(_in_two_processes, id="process", marks=pytest.mark.slow)


@pytest.mark.parametrize("run", [PROCESSES, pytest.param(_in_two_threads, id="script")])
def test_two_ranks_meet_at_a_barrier(run: Callable[..., list[Any]], tmp_path: Path) -> None:
    assert run(_pass_barrier, tmp_path) == [(0, 2, 0), (1, 2, 1)]


def _pass_barrier(ranks: RankGroup) -> tuple[int, int, int]:
    ranks.barrier()
    own = ranks.run_on_all(lambda: ranks.rank)
    ranks.barrier()
    return ranks.rank, ranks.world_size, own


def test_a_rank_that_has_ended_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("perfkit.record.script.coordination._CHECK_S", 0.0)
    store = HashStore()
    killed, waits = script_ranks(0, 2, store), script_ranks(1, 2, store)
    waits.agree_on_folder(lambda: tmp_path)
    killed.run_on_all(lambda: None)  # it has begun to write a trace
    with subprocess.Popen(["true"]) as process:
        mark_joined(tmp_path, 0, pid=process.pid)
    waits.barrier()
    assert "rank 1: rank 0 has ended: " in capsys.readouterr().err


def test_a_rank_that_has_failed_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("perfkit.record.script.coordination._CHECK_S", 0.0)
    store = HashStore()
    failed, waits = script_ranks(0, 2, store), script_ranks(1, 2, store)
    waits.agree_on_folder(lambda: tmp_path)
    failed.run_on_all(lambda: None)
    claim_failure(tmp_path, Failure(rank=0, message="boom"))  # it has removed all marks
    waits.barrier()
    assert "rank 1: rank 0 has failed: " in capsys.readouterr().err


def test_the_backend_of_a_group_that_names_none_is_that_of_the_device() -> None:
    assert backend_of("cpu") is None
    dist.init_process_group(store=HashStore(), rank=0, world_size=1)  # as a device mesh does
    try:
        assert (dist.get_backend(), backend_of("cpu")) == ("undefined", "gloo")
        ranks = ProcessRankGroup(CPU)  # its barriers are in a separate group, as with gloo by name
        ranks.barrier()
        ranks.close()
    finally:
        dist.destroy_process_group()
