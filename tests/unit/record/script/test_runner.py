"""How scripts are distinguished from workloads, how their ranks agree on a folder, and the hook on torch's import."""

import atexit
import os
import socket
import sys
import threading
import time
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace

import pytest
from torch.distributed import HashStore, TCPStore  # type: ignore[attr-defined]

from perfkit.cli.recording.script_options import is_script, split, workload_of
from perfkit.errors import RunError, StoreError, UsageError
from perfkit.options.script import ScriptConfig
from perfkit.record.distributed.launcher_env import RankInfo
from perfkit.record.import_hook import run_after_import
from perfkit.record.script import coordination
from perfkit.record.script.coordination import FileFolderExchange, FolderExchange, ScriptRankGroup, StoreFolderExchange
from perfkit.record.script.runner import _ScriptContext, _store
from tests.support.processes.waiting import MOST_S

SOON = timedelta(seconds=MOST_S)


class Clock:
    """A clock that goes on only while somebody sleeps."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(coordination, "time", SimpleNamespace(monotonic=made.monotonic, sleep=made.sleep))
    return made


@pytest.fixture
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let ranks wait for the others' threads, however late these start."""
    monkeypatch.setattr(coordination, "_JOIN_S", MOST_S)
    monkeypatch.setattr(coordination, "_ARRIVAL_S", MOST_S)


def test_options_end_at_the_first_double_dash() -> None:
    assert split(["--name", "a", "--", "--name", "b", "--", "c"]) == (["--name", "a"], ["--name", "b", "--", "c"])
    assert split(["--name", "a"]) == (["--name", "a"], [])
    assert split(["--"]) == ([], [])


@pytest.mark.parametrize(
    ("script", "name"),
    [
        ("/a/imagenet/main.py", "imagenet"),
        ("/a/.hidden/main.py", "hidden"),
        ("/main.py", "main"),
        ("/a/train.py", "train"),
    ],
)
def test_a_script_that_is_called_main_has_the_name_of_its_folder(script: str, name: str) -> None:
    assert workload_of(script) == name


def test_a_script_is_a_python_path_or_any_file(tmp_path: Path) -> None:
    (tmp_path / "train").touch()
    assert is_script("missing.py")
    assert is_script(str(tmp_path / "train"))
    assert not is_script(str(tmp_path))
    assert not is_script("transformer")


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"schedule": "active=0"}, "--schedule active=0"),
        ({"name": "a/b"}, "--name a/b"),
        ({"workload": ".hidden"}, "--workload .hidden"),
        ({"timeout": "1ms"}, "--timeout 1ms"),
        ({"timeout": "soon"}, "--timeout"),
    ],
)
def test_invalid_options(values: dict[str, str], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        ScriptConfig(**values)  # type: ignore[arg-type]  # str options only


def test_on_import_calls_once_the_module_is_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "followed_module.py").write_text("value = 1\n")
    monkeypatch.syspath_prepend(tmp_path)
    finders = list(sys.meta_path)
    seen: list[object] = []
    run_after_import("followed_module", lambda: seen.append(sys.modules["followed_module"].__dict__["value"]))
    assert seen == []
    import followed_module  # type: ignore[import-not-found]

    assert seen == [1]
    assert sys.meta_path == finders
    assert "exec_module" not in vars(followed_module.__loader__)
    run_after_import("followed_module", lambda: seen.append(2))
    assert seen == [1, 2]
    del sys.modules["followed_module"]


def test_on_import_leaves_a_missing_module_missing() -> None:
    finders = list(sys.meta_path)
    run_after_import("no_such_module", lambda: None)
    with pytest.raises(ModuleNotFoundError):
        import no_such_module  # type: ignore[import-not-found]  # noqa: F401
    sys.meta_path[:] = finders


def exchanges(kind: str, folder: Path) -> list[FolderExchange]:
    store = HashStore()
    return [
        StoreFolderExchange(store) if kind == "store" else FileFolderExchange(folder / "exchange") for _ in range(2)
    ]


def ranks(exchanges: list[FolderExchange], timeout: timedelta = SOON) -> list[ScriptRankGroup]:
    return [
        ScriptRankGroup(RankInfo(rank=rank, world_size=2), exchange, None, 0, timeout)
        for rank, exchange in enumerate(exchanges)
    ]


@pytest.mark.parametrize("kind", ["store", "file"])
def test_the_first_rank_creates_the_folder(kind: str, tmp_path: Path) -> None:
    zero, one = ranks(exchanges(kind, tmp_path))
    assert one.agree_on_folder(lambda: Path("made by 1")) == Path("made by 1")
    assert zero.agree_on_folder(lambda: Path("made by 0")) == Path("made by 1")
    zero.clear()
    one.clear()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("kind", ["store", "file"])
def test_the_others_learn_that_the_folder_could_not_be_created(kind: str, tmp_path: Path) -> None:
    def fail() -> Path:
        raise StoreError("full")

    zero, one = ranks(exchanges(kind, tmp_path))
    with pytest.raises(StoreError, match="full"):
        zero.agree_on_folder(fail)
    with pytest.raises(RunError, match="another rank could not create"):
        one.agree_on_folder(lambda: Path("never"))


@pytest.mark.parametrize("kind", ["store", "file"])
def test_no_rank_waits_for_ever_for_the_first_one(kind: str, tmp_path: Path) -> None:
    first, second = exchanges(kind, tmp_path)
    assert first.claim()
    (_, one) = ranks([first, second], timedelta(seconds=0.2))
    with pytest.raises(RunError, match=r"within --timeout 0\.2s"):
        one.agree_on_folder(lambda: Path("never"))


def in_threads(*actions: threading.Thread) -> None:
    for action in actions:
        action.start()
    for action in actions:
        action.join(MOST_S)
        assert not action.is_alive()


def with_barriers(timeout: timedelta = SOON) -> list[ScriptRankGroup]:
    store = HashStore()
    return [ScriptRankGroup(RankInfo(rank=rank, world_size=2), None, store, 3, timeout) for rank in range(2)]


@pytest.mark.usefixtures("_patient")
def test_ranks_wait_for_each_other() -> None:
    zero, one = with_barriers()
    order: list[int] = []

    def late() -> None:
        order.append(1)
        one.barrier()

    def early() -> None:
        zero.barrier()
        order.append(0)

    waiting = threading.Thread(target=early)
    waiting.start()
    in_threads(threading.Thread(target=late))
    waiting.join(MOST_S)
    assert order == [1, 0]


@pytest.mark.usefixtures("_patient")
def test_no_rank_waits_for_one_that_has_stopped(capsys: pytest.CaptureFixture[str]) -> None:
    zero, one = with_barriers()
    in_threads(threading.Thread(target=zero.barrier), threading.Thread(target=one.barrier))
    one.stop_waiting()
    one.barrier()
    in_threads(threading.Thread(target=zero.barrier), threading.Thread(target=zero.barrier))
    assert capsys.readouterr().err == ""  # nor is its absence reported


def test_a_rank_that_does_not_come_is_waited_for_once_and_briefly(
    clock: Clock, capsys: pytest.CaptureFixture[str]
) -> None:
    zero, _ = with_barriers(timedelta(minutes=5))
    begin = clock.now
    zero.barrier()
    zero.barrier()
    assert 1 < clock.now - begin < 3
    assert capsys.readouterr().err.count("the ranks do not step together") == 1


def test_a_rank_that_has_never_stepped_is_hardly_waited_for(clock: Clock, capsys: pytest.CaptureFixture[str]) -> None:
    # It may be one that perfkit does not run.
    zero = ScriptRankGroup(RankInfo(rank=0, world_size=2), None, HashStore(), 3, timedelta(minutes=5))
    begin = clock.now
    zero.barrier()
    zero.barrier()
    assert 0 < clock.now - begin < 1
    assert capsys.readouterr().err.count("not all ranks have stepped under perfkit") == 1


def test_a_rank_that_writes_its_trace_is_waited_for_as_long_as_that_takes(capsys: pytest.CaptureFixture[str]) -> None:
    zero, one = with_barriers()
    writes = threading.Event()

    def write_slowly() -> None:
        writes.set()
        time.sleep(2.5)  # longer than for one that does not write

    def write() -> None:
        one.run_on_all(write_slowly)
        one.barrier()

    def wait() -> None:
        writes.wait(MOST_S)
        zero.barrier()

    zero.run_on_all(lambda: None)
    in_threads(threading.Thread(target=write), threading.Thread(target=wait))
    assert capsys.readouterr().err == ""


def test_the_end_of_the_rank_that_hosts_the_store_is_a_warning(capsys: pytest.CaptureFixture[str]) -> None:
    server = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    store = TCPStore("127.0.0.1", server.port, wait_for_workers=False)
    rank = ScriptRankGroup(RankInfo(rank=1, world_size=2), None, store, 3, SOON)
    del server
    rank.barrier()
    rank.barrier()
    rank.stop_waiting()
    assert capsys.readouterr().err.count("rank 1: another rank has ended") == 1


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere loopback has one address")
def test_the_store_of_ranks_that_perfkit_starts_listens_on_loopback_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.environ", dict(os.environ))
    with _store():
        port = int(os.environ["MASTER_PORT"])
        with socket.create_connection(("127.0.0.1", port), timeout=5):
            pass
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.2", port), timeout=5)


def test_an_own_excepthook_shows_the_error_though_the_recording_is_interrupted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(_context: _ScriptContext, _error: BaseException | None) -> None:
        raise KeyboardInterrupt

    shown: list[BaseException] = []
    monkeypatch.setattr(_ScriptContext, "_finish", interrupt)
    monkeypatch.setattr(atexit, "register", lambda *_: None)
    context = _ScriptContext("train.py", [], ScriptConfig(trace_dir=str(tmp_path)))
    monkeypatch.setattr(sys, "excepthook", lambda _kind, error, _trace: shown.append(error))
    error = ValueError("bad")
    with pytest.raises(KeyboardInterrupt):
        context.__exit__(ValueError, error, None)
    assert shown == [error]
