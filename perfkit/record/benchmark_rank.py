"""Runs one rank of a benchmark, from joining the process group to the finished record."""

import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, NamedTuple, Protocol, TypeVar

import msgspec
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from perfkit.errors import UsageError
from perfkit.options.run import RunConfig
from perfkit.record.distributed.process_group import locate, process_group
from perfkit.record.distributed.rank_group import ProcessRankGroup
from perfkit.record.distributed.topology import Topology
from perfkit.record.lifecycle.failure_guard import FailureGuard
from perfkit.record.lifecycle.parent_watch import exit_with_parent
from perfkit.record.lifecycle.watchdog import Watchdog
from perfkit.record.process_stat import process_identity
from perfkit.record.recording.manifest_writer import RunDescription, open_run

RecordT = TypeVar("RecordT")

Finish = Callable[[RecordT], RecordT]
"""Called on rank 0 with the record, while the others wait; returns it with what it has added."""


class Options(Protocol):
    """The options of a benchmark: a record, the same on all ranks."""

    @property
    def run_config(self) -> RunConfig:
        """The options that a training run has as well, for joining the process group."""

    def check_world(self, world_size: int) -> None:
        """Raise UsageError if the benchmark does not work on so many ranks."""


class Setting(NamedTuple):
    """Where a benchmark runs."""

    ranks: ProcessRankGroup
    topology: Topology
    started_at: str


_FOLDER: Final = "perfkit"


def run_benchmark(
    name: str,
    config: Options,
    measure: Callable[[Setting], RecordT],
    finish: Finish[RecordT],
    debug: bool = False,
) -> RecordT | None:
    """Run one rank of the benchmark `name`; all ranks call it.

    Returns:
        The record on rank 0; None on the others.

    Raises:
        PerfkitError: With a single rank. Of several, the first that fails prints the error, and all exit.
    """
    exit_with_parent()
    started = datetime.now(UTC).isoformat(timespec="seconds")
    info, mpi = locate()
    with (
        FailureGuard(info.rank, info.world_size, debug) as guard,
        process_group(config.run_config, info, mpi) as (ranks, topology),
    ):
        ranks.run_on_all(lambda: config.check_world(info.world_size))
        check_same_options(as_dict(config), ranks)
        description = RunDescription(workload=name, source="none", config=as_dict(config))
        # In which ranks and watchdog record the first failure.
        folder = open_run(ranks, topology, description, Path(tempfile.gettempdir()), f"{_FOLDER}-{name}")
        guard.folder, guard.current_activity = folder, lambda: ranks.current_activity
        watchdog = Watchdog(info.rank, ranks.all_gather(process_identity()), folder, temporary=True)
        record = measure(Setting(ranks, topology, started))
        finished = ranks.run_on(ranks.rank == 0, lambda: finish(record))
        watchdog.dismiss()
        if info.rank == 0:
            shutil.rmtree(folder, ignore_errors=True)
    return finished


def as_dict(config: Options) -> dict[str, Any]:
    """Return the options by name, with values as JSON has them."""
    values: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(config))
    return values


def check_same_options(options: dict[str, Any], ranks: ProcessRankGroup) -> None:
    """Refuse ranks that were started with different options: they would wait for each other for ever."""
    reference = ranks.broadcast(options)

    def check() -> None:
        differing = [name for name, value in options.items() if reference.get(name) != value]
        if differing:
            flags = ", ".join("--" + name.replace("_", "-") for name in differing)
            raise UsageError(f"options differ from those of rank 0 ({flags}): start all ranks with the same options")

    ranks.run_on_all(check)


Show = Callable[[int, str], None]
"""Called with the number of finished measurements, and the last one in words."""


@contextmanager
def progress(total: int, visible: bool) -> Iterator[Show]:
    if not (visible and total and sys.stderr.isatty()):
        yield lambda _done, _what: None
        return
    # No refresh by a separate thread: it would run beside what is measured.
    columns = (BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TextColumn("{task.description}"))
    with Progress(*columns, console=Console(stderr=True), auto_refresh=False, transient=True) as bar:
        task = bar.add_task("", total=total)

        def draw(done: int, what: str) -> None:
            bar.update(task, completed=done, description=what, refresh=True)

        yield draw
