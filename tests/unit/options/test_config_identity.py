"""All rooms agree on which runs have the same configuration."""

from typing import Any

import pytest

from perfkit.options.identity import (
    companions,
    differing,
    format_option,
    is_input_option,
    key,
    settings,
)
from perfkit.records.run import RunReport
from perfkit.subjects.comparison.changes import findings
from perfkit.subjects.comparison.history import config_histories
from perfkit.tools.sweep.point import make_point
from tests.support.reports.scaling_builders import make_scaled

HERE = {"trace_dir": "jan", "data_dir": "jan/.data"}


def made(config: dict[str, Any], source: str) -> RunReport:
    return make_scaled(1, 100, source=source, name="run", config=config, started_at="2026-01-01T00:00:00Z")


def test_a_monitor_makes_no_difference_between_runs() -> None:
    one, other = made(HERE, "hdf5"), made(HERE | {"monitor": True, "monitor_bytes": "1M"}, "hdf5")
    assert settings(one) == settings(other)


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
def test_sweeps_histories_comparisons_and_series_agree(source: str, change: dict[str, Any], same: bool) -> None:
    one, other = made(HERE, source), made(HERE | change, source)
    keys = [make_point("gpt", 1, run.config or {}, [], {}, None).key for run in (one, other)]
    assert (keys[0] == keys[1]) is same
    told = [settings(run) for run in (one, other)]
    assert (key(told[0] or {}) == key(told[1] or {})) is same
    assert (len(config_histories([one, other], "run").configurations) == 1) is same
    assert ("configurations_differ" not in {found.code for found in findings([one], [other])}) is same


def test_the_data_folder_is_ignored_for_the_source_memory() -> None:
    one, other = made(HERE, "memory"), made(HERE | {"data_dir": "/fast"}, "memory")
    assert settings(one) == settings(other)
    assert len(config_histories([one, other], "run").configurations) == 1
    assert [found.code for found in findings([one], [other])] == ["too_few_repeats"]


def test_companions() -> None:
    hdf5, memory = settings(made(HERE, "hdf5")) or {}, settings(made(HERE, "memory")) or {}
    both = {"hdf5_chunk", "hdf5_compression", "data_dir", "version.h5py"}
    assert set(companions("source", [hdf5, memory])) == both
    assert set(companions("source", [memory, {"source": "tape"}])) == {"data_dir"}
    assert companions("hdf5_compression", [hdf5]) == ("hdf5_chunk",)
    assert companions("num_workers", []) == ("prefetch", "worker_start")
    assert companions("precision", [hdf5]) == ()


def test_a_source_that_is_no_text_has_no_companions() -> None:
    several: list[dict[str, Any]] = [{"source": 7}, {"source": ["hdf5"]}, {"source": "hdf5"}, {"source": None}]
    assert companions("hdf5_compression", several) == ("hdf5_chunk",)
    runs = [made(HERE | {"source": source}, "hdf5") for source in (7, ["hdf5"])]
    (differ,) = [found for found in findings(runs[:1], runs[1:]) if found.code == "configurations_differ"]
    assert differ.values["options"]["source"] == ["7", "hdf5"]


def test_input_options() -> None:
    given = ("source", "read", "num_workers", "prefetch", "pin_memory", "hdf5_chunk", "hdf5_compression")
    assert all(map(is_input_option, given))
    assert not any(map(is_input_option, ("batch_size", "zarr_chunk", "hdf5_nothing", "overlap")))


def test_a_long_value_is_shortened_and_stays_distinct() -> None:
    one, other = ('{"zero_optimization":{"stage":2},' + '"x":1,' * 50 + end for end in ('"y":1}', '"y":2}'))
    short = format_option(one)
    assert short.startswith('{"zero_optimization":{"stage":')
    assert len(short) < 50
    assert short != format_option(other)
    assert format_option("x" * 80) == "x" * 80
    assert format_option(["a" * 50, "b" * 50]) != format_option(["a" * 50, "c" * 50])
    assert len(format_option("\ud800" * 100)) < 50


def test_a_script_is_scaled_in_the_argument_with_its_batch_only() -> None:
    def made(*tokens: str) -> dict[str, str] | None:
        config = {"script": "t.py", "arguments": list(tokens), "batch_arg": "--bs", "source": "x"}
        return settings(make_scaled(1, 100, source="x", config=config))

    assert made("--bs=8", "--lr=1") == made("--bs", "4", "--lr", "1") != made("--bs=8", "--lr=2")
    found = made("--lr=1", "--source=y")
    assert found is not None
    assert (found["lr"], found["--source"], found["source"]) == ("1", "y", "x")


def test_an_argument_that_is_filled_with_the_source_goes_with_it() -> None:
    compared = [{"script": "t.py", "source": name, "data": f"d/{name}.h5", "lr": "1"} for name in ("memory", "hdf5")]
    assert differing(compared) == ["source"]
    assert differing([one | {"lr": str(place)} for place, one in enumerate(compared)]) == ["source", "lr"]
