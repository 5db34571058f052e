"""Traces of other programs whose groups are described: every collective has its dimension, and its hosts."""

from pathlib import Path

import pytest

import perfkit
from tests.support.traces.mesh_traces import CALLS, MESSAGES, STEPS, write_mesh

DESCRIPTIONS = {
    "device mesh": {"pp": "mesh_pp", "dp": "mesh_dp", "tp": "mesh_tp"},
    "torchtitan": {"pp": "mesh_pp", "dp": "mesh_dp_shard_cp", "tp": "mesh_tp"},
    "megatron": {
        "pp": "PIPELINE_MODEL_PARALLEL_GROUP",
        "dp": "DATA_PARALLEL_GROUP",
        "tp": "TENSOR_MODEL_PARALLEL_GROUP",
    },
}


@pytest.mark.parametrize("names", DESCRIPTIONS.values(), ids=DESCRIPTIONS)
def test_every_collective_has_the_right_dimension(tmp_path: Path, names: dict[str, str]) -> None:
    (run,) = perfkit.analyze(write_mesh(tmp_path, names), cache=False).runs
    assert run.dimensions is not None
    renamed = {"dp": "shard+cp"} if "shard" in names["dp"] else {}
    found = {row.dimension: row for row in run.dimensions.rows}
    assert set(found) == {renamed.get(name, name) for name in CALLS}
    for name, calls in CALLS.items():
        row = found[renamed.get(name, name)]
        size = sum(4 * message.elements for message in MESSAGES if message.dimension == name)
        assert (row.calls, row.group_size, row.groups) == (8 * STEPS * calls, 2, 4)
        assert row.across_hosts is False
        assert row.bytes == 8 * STEPS * size
    assert all(own.dimension is not None for own in run.ranks[0].collectives)


def test_groups_on_one_host_and_across_hosts_are_apart(tmp_path: Path) -> None:
    """With four ranks per host, only the pipeline leaves it; with one, every group does."""
    (run,) = perfkit.analyze(write_mesh(tmp_path / "4", DESCRIPTIONS["device mesh"], 4), cache=False).runs
    assert run.dimensions is not None
    assert {row.dimension: row.across_hosts for row in run.dimensions.rows} == {"pp": True, "dp": False, "tp": False}
    (run,) = perfkit.analyze(write_mesh(tmp_path / "1", DESCRIPTIONS["device mesh"], 1), cache=False).runs
    assert run.dimensions is not None
    assert all(row.across_hosts for row in run.dimensions.rows)


def test_a_missing_trace_leaves_the_hosts_of_its_groups_open(tmp_path: Path) -> None:
    """Rank 7 shares groups with 6, 5 and 3: where it ran is not known, so neither is whether they span hosts."""
    write_mesh(tmp_path, DESCRIPTIONS["device mesh"])
    (tmp_path / "rank7.json.gz").unlink()
    (run,) = perfkit.analyze(tmp_path, cache=False).runs
    assert run.dimensions is not None
    found = {(row.dimension, row.across_hosts): row for row in run.dimensions.rows}
    assert set(found) == {(name, known) for name in CALLS for known in (False, None)}
    assert (found["tp", False].groups, found["tp", None].groups) == (3, 1)
