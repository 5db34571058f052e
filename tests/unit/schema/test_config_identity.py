"""Every part has the same idea of which runs are of one configuration."""

from typing import Any

import pytest

from perfkit.comparison.changes import findings
from perfkit.comparison.history import config_histories
from perfkit.scaling.run_settings import key, settings
from perfkit.schema.run import RunReport
from perfkit.sweep.point import make_point
from tests.support.scaling_builders import make_scaled

HERE = {"trace_dir": "jan", "data_dir": "jan/.data"}


def made(config: dict[str, Any], source: str) -> RunReport:
    return make_scaled(1, 100, source=source, name="run", config=config, started_at="2026-01-01T00:00:00Z")


@pytest.mark.parametrize(
    ("source", "change", "same"),
    [
        ("hdf5", {"trace_dir": "feb", "data_dir": "feb/.data"}, True),
        ("hdf5", {"trace_dir": "feb/", "data_dir": "feb/.data"}, True),
        ("hdf5", {"name": "other", "config": "other.toml"}, True),
        ("hdf5", {"trace_dir": "feb", "data_dir": "/fast"}, False),
        ("hdf5", {"data_dir": "/fast"}, False),
        ("hdf5", {"precision": "bfloat16"}, False),
    ],
)
def test_all_agree(source: str, change: dict[str, Any], same: bool) -> None:
    one, other = made(HERE, source), made(HERE | change, source)
    keys = [make_point("gpt", 1, run.config or {}, [], {}).key for run in (one, other)]
    assert (keys[0] == keys[1]) is same
    told = [settings(run) for run in (one, other)]
    assert (key(told[0] or {}) == key(told[1] or {})) is same
    assert (len(config_histories([one, other], "run").configurations) == 1) is same
    assert ("configurations_differ" not in {found.code for found in findings([one], [other])}) is same


def test_what_is_read_from_memory_has_no_folder() -> None:
    one, other = made(HERE, "memory"), made(HERE | {"data_dir": "/fast"}, "memory")
    assert settings(one) == settings(other)
    assert len(config_histories([one, other], "run").configurations) == 1
    assert [found.code for found in findings([one], [other])] == ["too_few_repeats"]
