"""The run of a script that begins while the first step is in progress, and the watch that begins it."""

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch.distributed as dist
from torch.distributed import HashStore, PrefixStore, Store, TCPStore  # type: ignore[attr-defined]

from perfkit.errors import RunError, StoreError
from perfkit.record.distributed.launcher_env import RankInfo
from perfkit.record.endings import TerminatedError
from perfkit.record.script import first_step
from perfkit.record.script.coordination import RankExchange, ScriptRankGroup, StoreFolderExchange, find_ranks
from perfkit.record.script.first_step import BegunRun, FirstStepWatch, RunBeginning
from perfkit.record.script.rank_marks import joined_ranks, mark_joined
from perfkit.storage.run_folder import read_manifest
from tests.support.processes.waiting import MOST_S, wait_for_threads
from tests.support.reports.histories import make_run_folder


class Hangs:
    def __init__(self) -> None:
        self.started = threading.Event()
        self.stopped_with: list[BaseException | None] = []

    def begin(self, begin_s: float) -> None:
        assert begin_s > 0
        self.started.set()

    def stop(self, error: BaseException | None) -> None:
        self.stopped_with.append(error)


@pytest.fixture
def hangs() -> Hangs:
    return Hangs()


@pytest.fixture
def several() -> RankExchange:
    store = HashStore()
    return RankExchange(RankInfo(rank=1, world_size=2), StoreFolderExchange(store), store)


@pytest.fixture
def run(tmp_path: Path, hangs: Any, several: RankExchange) -> RunBeginning:
    folder = make_run_folder(tmp_path / "run", 0, state="running")

    def begin() -> BegunRun:
        mark_joined(folder, 1)
        return BegunRun(ScriptRankGroup(*several, 0, timedelta(seconds=1)), folder, hangs)

    return RunBeginning(begin)


@pytest.fixture
def watch(monkeypatch: pytest.MonkeyPatch) -> Callable[..., FirstStepWatch]:
    """Start a watch that looks often, with a limit of 0.01 s."""
    monkeypatch.setattr(first_step, "WATCH_S", 0.002)
    monkeypatch.setattr(first_step, "watch_s", lambda _: 0.002)

    def start(run: RunBeginning, found: RankExchange, *, busy: bool = False, limit_s: float = 0.001) -> FirstStepWatch:
        started = FirstStepWatch(limit_s, run, lambda: found, lambda: busy)
        started.start()
        return started

    return start


def test_a_first_step_that_does_not_end_begins_the_run(
    run: RunBeginning, several: RankExchange, hangs: Hangs, watch: Callable[..., FirstStepWatch]
) -> None:
    watch(run, several)
    assert hangs.started.wait(MOST_S)
    assert run.get() is run.begun


def test_a_run_that_another_rank_has_begun_begins_here_too(
    run: RunBeginning, several: RankExchange, hangs: Hangs, watch: Callable[..., FirstStepWatch]
) -> None:
    watch(run, several, limit_s=3600)
    assert not hangs.started.wait(0.05)
    assert several.exchange is not None
    several.exchange.publish("a folder")
    assert hangs.started.wait(MOST_S)


@pytest.mark.parametrize("why", ["a single rank", "no group", "a group of the parent's", "busy", "stopped"])
def test_nothing_begins(
    why: str,
    run: RunBeginning,
    several: RankExchange,
    hangs: Hangs,
    watch: Callable[..., FirstStepWatch],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = several
    if why == "a single rank":
        found = RankExchange(RankInfo(), None, several.store)
    elif why == "no group":
        found = several._replace(store=None)
    elif why == "a group of the parent's":  # a loader worker
        monkeypatch.setattr("torch.distributed.is_initialized", lambda: True)
    started = watch(run, found, busy=why == "busy", limit_s=3600 if why == "stopped" else 0.001)
    if why == "stopped":
        started.stop()
        wait_for_threads("perfkit-first-step")  # it may just have found that it has not been stopped
        assert several.exchange is not None
        several.exchange.publish("a folder")
    assert not hangs.started.wait(0.1)
    assert run.begun is None
    started.stop()


def test_a_run_that_cannot_begin_fails_the_same_way_again() -> None:
    calls = []

    def fail() -> BegunRun:
        calls.append(1)
        raise StoreError("full")

    run = RunBeginning(fail)
    for _ in range(2):
        with pytest.raises(StoreError, match="full"):
            run.get()
    assert calls == [1]
    run.leave(None)


@pytest.mark.parametrize(
    ("error", "message"),
    [(None, "no step was recorded"), (ValueError("a bad batch"), "a bad batch"), (TerminatedError("ended"), "ended")],
)
def test_a_run_in_which_no_step_has_ended_has_failed(
    error: BaseException | None, message: str, run: RunBeginning, hangs: Hangs
) -> None:
    folder = run.get().folder
    run.leave(error)
    manifest = read_manifest(folder)
    assert manifest.failure is not None
    assert (manifest.state, manifest.failure.rank, message in manifest.failure.message) == ("failed", 1, True)
    assert (hangs.stopped_with, list(folder.glob(".*"))) == ([error], [])


def test_a_rank_that_never_steps_does_not_keep_the_others_run(run: RunBeginning) -> None:
    folder = run.get().folder
    mark_joined(folder, 0)
    run.leave(None)
    assert (read_manifest(folder).state, joined_ranks(folder)) == ("running", {0})


def test_a_run_that_has_not_begun_is_not_ended_and_begins_no_more(run: RunBeginning, hangs: Hangs) -> None:
    run.leave(None)
    assert hangs.stopped_with == []
    with pytest.raises(RunError, match="the script has ended"):
        run.get()
    assert run.begun is None


def test_a_run_that_begins_while_the_script_ends_is_ended_too(run: RunBeginning, tmp_path: Path) -> None:
    begins, may_begin = threading.Event(), threading.Event()
    begin = run._begin

    def begin_slowly() -> BegunRun:
        begins.set()
        may_begin.wait(MOST_S)
        return begin()

    run._begin = begin_slowly
    watching = threading.Thread(target=run.get)
    watching.start()
    assert begins.wait(MOST_S)
    threading.Timer(0.05, may_begin.set).start()
    run.leave(None)
    watching.join(MOST_S)
    assert (read_manifest(tmp_path / "run").state, joined_ranks(tmp_path / "run")) == ("failed", set())


def test_a_rank_that_is_to_end_does_not_wait_for_a_run_that_cannot_begin(run: RunBeginning) -> None:
    with run._lock:  # the watch waits for a folder that a rank which is gone was to create
        run.leave(TerminatedError("ended"), 0.01)
    assert run.begun is None


def test_a_signal_handler_may_end_the_run_while_it_begins() -> None:
    def begin() -> BegunRun:
        run.leave(TerminatedError("ended"))  # as in a handler, which runs in the thread that begins the run
        left.set()
        raise StoreError("the process is gone by now")

    def ask() -> None:
        with suppress(StoreError):
            run.get()

    run, left = RunBeginning(begin), threading.Event()
    threading.Thread(target=ask, daemon=True).start()
    assert left.wait(MOST_S)


@pytest.fixture
def group_store(monkeypatch: pytest.MonkeyPatch) -> Store:
    """Return the store of a process group of two ranks, as `init_process_group` wraps it."""
    server = TCPStore("127.0.0.1", 0, None, True, timedelta(seconds=MOST_S), wait_for_workers=False)
    store = PrefixStore("default_pg", server)
    monkeypatch.setattr(dist, "is_initialized", lambda: True)
    monkeypatch.setattr(dist, "get_rank", lambda: 0)
    monkeypatch.setattr(dist, "get_world_size", lambda: 2)
    monkeypatch.setattr(dist.distributed_c10d, "_get_default_store", lambda: store)
    return store


def test_the_ranks_find_each_other_while_the_script_waits_in_the_store(tmp_path: Path, group_store: Store) -> None:
    def wait() -> None:
        with suppress(RuntimeError):  # its limit
            group_store.get("never")
        over.set()

    over = threading.Event()
    find = partial(find_ranks, tmp_path, "script", own_connection=True)
    assert find().store is not None  # the connection is made once
    threading.Thread(target=wait, daemon=True).start()
    time.sleep(0.1)
    found = find()
    assert isinstance(found.store, PrefixStore)
    assert found.exchange is not None
    assert not found.exchange.is_published()
    found.exchange.publish("a folder")
    assert not over.is_set()
    found.store.underlying_store.set("never", "")
    assert over.wait(MOST_S)
