"""Executors of other packages: opened by name, with their options, and what a broken one costs."""

from concurrent.futures import Executor, ThreadPoolExecutor
from pathlib import Path

import pytest

from perfkit.base import executors
from perfkit.base.executors import ExecutorOptions, check, open_executor
from perfkit.errors import PluginError, UsageError
from perfkit.plugins import Registry
from tests.support.processes.waiting import MOST_S

SOURCE = """
from concurrent.futures import ThreadPoolExecutor

def open_threads(options):
    return ThreadPoolExecutor(options.workers)

def fail(options):
    raise OSError("no cluster")

def open_file(options):
    return open(__file__)
"""


@pytest.fixture(autouse=True)
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "pk_executors.py").write_text(SOURCE)
    metadata = tmp_path / "pk_executors-1.2.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: pk_executors\nVersion: 1.2\n")
    rows = "threads = pk_executors:open_threads\nfailing = pk_executors:fail\nfile = pk_executors:open_file\n"
    (metadata / "entry_points.txt").write_text(f"[perfkit.executors]\n{rows}")
    monkeypatch.syspath_prepend(str(tmp_path))
    rebuilt: Registry[executors.ExecutorFactory] = Registry(
        executors.EXECUTORS.group,
        executors.EXECUTORS.noun,
        executors.EXECUTORS.builtin,
        executors.EXECUTORS._find_problem,
    )
    monkeypatch.setattr(executors, "EXECUTORS", rebuilt)


def test_an_executor_of_a_package_takes_its_options() -> None:
    options = ExecutorOptions(workers=3, scheduler="ray://head:10001")
    check("threads", options)
    with open_executor("threads", options) as pool:
        assert isinstance(pool, ThreadPoolExecutor)
        assert pool.submit(pow, 2, 10).result(MOST_S) == 1024


@pytest.mark.parametrize(("name", "why"), [("failing", "OSError: no cluster"), ("file", "is a TextIOWrapper")])
def test_one_that_cannot_be_opened_is_one_line(name: str, why: str) -> None:
    with pytest.raises(PluginError, match=why), open_executor(name, ExecutorOptions()):
        pass


def test_errors_of_the_work_are_not_the_plugins() -> None:
    with pytest.raises(ValueError, match="mine"), open_executor("threads", ExecutorOptions()) as pool:  # noqa: PT012
        assert isinstance(pool, Executor)
        raise ValueError("mine")


def test_unknown_names_are_refused() -> None:
    with pytest.raises(UsageError, match="choose from serial, processes, mpi, dask, failing, file, threads"):
        check("thread", ExecutorOptions())
