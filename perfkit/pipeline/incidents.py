"""What happened in a run beside its usual steps, from the files that it left: hangs after which it went on, stalls."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from perfkit.errors import StoreError
from perfkit.pipeline.run_report import with_findings
from perfkit.records.common import Observation
from perfkit.records.manifest import RankRecord, RunManifest
from perfkit.records.monitor import KIND_NUMBERS, UNKNOWN
from perfkit.records.run import RunReport
from perfkit.storage.hang_log import observe_hangs
from perfkit.storage.run_folder import MANIFEST_NAME, read_manifest

if TYPE_CHECKING:
    from perfkit.subjects.monitor.align import RankSteps


def with_incidents(runs: list[RunReport]) -> list[RunReport]:
    """Return the runs with a finding for what happened in each; of a folder with several jobs, none has any."""
    folders = [run.path for run in runs]
    return [_with_own(run) if folders.count(run.path) == 1 else run for run in runs]


def _with_own(run: RunReport) -> RunReport:
    folder = Path(run.path)
    found = [*observe_hangs(folder), *(stall_findings(folder) if run.monitor is None else ())]
    return with_findings(run, found) if found else run


def stall_findings(folder: Path) -> Iterator[Observation]:
    """Yield what the step times in `run.json` show of slow steps, by the tests for those of the monitor's logs."""
    if not (folder / MANIFEST_NAME).is_file():
        return
    try:
        manifest = read_manifest(folder)
    except StoreError:  # which is a finding already
        return
    from perfkit.subjects.monitor.align import align
    from perfkit.subjects.monitor.summarize import find_slow_steps

    table = align({one.rank: _steps(one, manifest) for one in manifest.ranks})
    found = None if table is None else find_slow_steps(table)
    if found is not None and found.slow:
        yield Observation("slow_steps", {"steps": found.slow, "count": found.slow_count})


def _steps(record: RankRecord, manifest: RunManifest) -> "RankSteps":
    """Return the steps of a rank as its log would have them."""
    from perfkit.subjects.monitor.align import COLUMNS, RankSteps

    count = len(record.step_wall_ns)
    kinds = [KIND_NUMBERS[kind] for kind in manifest.step_kinds[:count]]
    columns = {name: np.full(count, UNKNOWN, np.float32) for name in COLUMNS}
    columns["kind"][: len(kinds)] = kinds
    columns["step_ns"] = columns["longest_ns"] = np.array(record.step_wall_ns, np.float32)
    columns["data_ns"][: len(record.load_ns)] = record.load_ns[:count]
    columns["longest_offset"] = np.zeros(count, np.float32)
    return RankSteps(np.arange(count), np.ones(count, np.int64), columns)
