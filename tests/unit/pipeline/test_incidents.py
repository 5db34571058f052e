from pathlib import Path

from msgspec.structs import replace

from perfkit.pipeline.monitor import stall_findings
from perfkit.records.manifest import RankRecord
from perfkit.report.wording.findings import word_all
from perfkit.storage.run_folder import write_manifest
from tests.support.manifests import make_manifest

MS = 1_000_000


def write_run(folder: Path, step_wall_ns: list[int]) -> None:
    record = RankRecord(
        rank=0,
        local_rank=0,
        node_rank=0,
        host="a",
        device="cpu",
        device_name="cpu",
        threads=1,
        step_wall_ns=step_wall_ns,
        load_ns=[MS for _ in step_wall_ns],
        loss=[None for _ in step_wall_ns],
    )
    kinds = ["cold", *("plain" for _ in step_wall_ns[1:])]
    write_manifest(folder, replace(make_manifest("completed"), ranks=[record], step_kinds=kinds))


def usual(steps: int) -> list[int]:
    return [900 * MS, *(50 * MS + place % 7 * MS // 10 for place in range(1, steps))]


def test_a_stall_is_found_in_the_step_times_of_the_manifest(tmp_path: Path) -> None:
    times = usual(60)
    times[40] = 4_000 * MS
    write_run(tmp_path, times)
    (found,) = word_all(stall_findings(tmp_path))
    assert found.code == "slow_steps"
    assert "usual: step 40 (79." in found.message


def test_of_even_or_few_steps_none_is_told(tmp_path: Path) -> None:
    assert list(stall_findings(tmp_path)) == []
    write_run(tmp_path, usual(60))
    assert list(stall_findings(tmp_path)) == []
    write_run(tmp_path, [50 * MS, 900 * MS, *usual(8)])
    assert list(stall_findings(tmp_path)) == []
