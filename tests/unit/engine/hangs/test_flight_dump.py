"""Dumps of torch's flight recorder: damaged ones are an error of one kind, and absurd numbers do no harm."""

import contextlib
import json
import pickle
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfkit.engine.hangs.flight_dump import read_flight_dump
from perfkit.errors import StoreError
from tests.support.hangs.flight_dumps import dump, entry
from tests.support.hangs.rank_states import diagnose

GOOD = dump(entry(1, state="completed"), entry(2))
NUMBERS = st.sampled_from([0, -1, 2**31, 2**63, 2**100, 10**300]) | st.integers()


def read(value: Any) -> None:
    """Read a dump and compare it with another rank's, as far as it can be read."""
    for data in (pickle.dumps(value, 2), json.dumps(value).encode()):
        with contextlib.suppress(StoreError):
            found = diagnose("job", [read_flight_dump(data, 0), read_flight_dump(pickle.dumps(GOOD, 2), 1)])
            assert found.headline.isprintable()


@given(st.sampled_from(["collective_seq_id", "time_created_ns", "input_sizes", "input_dtypes", "frames"]), NUMBERS)
def test_absurd_numbers_do_no_harm(field: str, number: int) -> None:
    values = {"input_sizes": [[number] * 20], "input_dtypes": [str(number)], "frames": [{"line": number}]}
    read(dump({**entry(2), field: values.get(field, number)}))


@given(st.data())
def test_a_damaged_dump_is_an_error_of_one_kind(data: st.DataObject) -> None:
    good = bytearray(pickle.dumps(GOOD, 2) if data.draw(st.booleans()) else json.dumps(GOOD).encode())
    for _ in range(data.draw(st.integers(1, 5))):
        good[data.draw(st.integers(0, len(good) - 1))] = data.draw(st.integers(0, 255))
    with contextlib.suppress(StoreError):
        assert read_flight_dump(bytes(good), 0).rank == 0


@pytest.mark.parametrize("value", [[], 3, {}, {"version": 2}, {"version": "2", "entries": [3]}])
def test_what_is_no_dump_is_refused(value: Any, tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="not a dump of torch's flight recorder"):
        read_flight_dump(pickle.dumps(value, 2), 0)


def many_frames() -> Any:
    frame = {"name": "f", "filename": "x.py", "line": 1}
    return dump(*[{**entry(1), "frames": frames} for frames in [[frame] * 1000] * 1000])


def many_sizes() -> Any:
    return dump({**entry(1), "input_sizes": [[1] * 2000] * 2000})


def many_ranks() -> Any:
    group = {"name": "g", "ranks": str(list(range(10_000)))}
    return {**dump(entry(1)), "pg_config": {str(number): group for number in range(1100)}}


@pytest.mark.parametrize(
    ("made", "problem"), [(many_frames, "bomb"), (many_sizes, "bomb"), (many_ranks, "more than 10,000,000 ranks")]
)
def test_a_small_file_does_not_become_large_by_what_it_shares(made: Any, problem: str) -> None:
    data = pickle.dumps(made(), 2)
    assert len(data) < 200_000
    with pytest.raises(StoreError, match=problem):
        read_flight_dump(data, 0)


def test_frames_that_all_entries_share_are_read() -> None:
    frames = [{"name": f"f{line}", "filename": "x.py", "line": line} for line in range(80)]
    data = pickle.dumps(dump(*[{**entry(number), "frames": list(frames)} for number in range(2000)]), 2)
    calls = read_flight_dump(data, 0).collectives
    assert calls is not None
    assert [len(call.frames) for call in calls] == [80] * 2000
