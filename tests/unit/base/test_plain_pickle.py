"""Pickles are read without executing anything; what is not plain, or not whole, is an error."""

import contextlib
import os
import pickle
import struct
from collections import OrderedDict
from types import NoneType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfkit.base import plain_pickle
from perfkit.base.plain_pickle import MOST_COUNTED, PlainPickleError, count_copied, load_plain
from tests.support.traces.memory.memory_snapshots import made_training

PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats(allow_nan=False) | st.text() | st.binary(),
    lambda inner: (
        st.lists(inner, max_size=5)
        | st.dictionaries(st.text(), inner, max_size=5)
        | st.tuples(inner, inner, inner, inner)
    ),
    max_leaves=8,
)


@given(PLAIN, st.sampled_from([3, 4, 5]))
def test_plain_values_are_read_as_python_reads_them(value: Any, protocol: int) -> None:
    assert load_plain(pickle.dumps(value, protocol)) == value


@given(st.lists(st.tuples(st.text(), st.integers(-(2**70), 2**70), st.dictionaries(st.text(), st.none()))))
def test_so_are_those_of_protocol_2_where_only_bytes_are_calls(value: Any) -> None:
    assert load_plain(pickle.dumps(value, 2)) == value


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_texts_can_be_written_again(protocol: int) -> None:
    read = load_plain(pickle.dumps({"frames": ["a\ud800b", "\u00e9", "x" * 300 + "\udfff"], "\ud800": 1}, protocol))
    assert read == {"frames": ["a?b", "\u00e9", "x" * 300 + "?"], "?": 1}


def test_shared_values_stay_shared() -> None:
    inner = [1]
    first, second = load_plain(pickle.dumps([inner, inner]))
    assert first is second


class _Runs:
    def __reduce__(self) -> tuple[Any, ...]:
        return (os.mkdir, ("executed",))


@pytest.mark.parametrize("value", [_Runs(), OrderedDict(a=1), {1, 2}, os.getcwd, _Runs, 1 << 4000, bytearray(b"x")])
def test_nothing_is_imported_or_called(value: Any, tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for protocol in range(6):
        with pytest.raises(PlainPickleError):
            load_plain(pickle.dumps({"segments": [value]}, protocol))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x80\x04",
        b"\x80\x04(.",
        b"e.",
        b"(e.",
        b"\x80\x04K\x01K\x02.",  # two values
        b"j\xff\xff\xff\xff.",  # what was never stored
        b"X\xff\xff\xff\xff.",  # a text of 4 GiB that is not there
        b"\x8d" + struct.pack("<Q", 2**62) + b".",
        b"\x8a\xff.",
        b"}(K\x01K\x02u.",  # keys are texts
        b"}(\x8c\x01au.",  # a key without a value
        b"}](\x8c\x01aK\x01u.",  # items for a list
        b"K\x01a.",
        b"\x8c\x01\xff.",  # not UTF-8
        b"\x87.",
        b"cos\nsystem\n(S'true'\ntR.",
        b"P1\n.",
        b"\x82\x01.",
    ],
)
def test_damage_is_an_error(data: bytes) -> None:
    with pytest.raises(PlainPickleError):
        load_plain(data)


def test_a_place_in_the_memo_costs_nothing() -> None:
    # Python's own reader makes room for all places before it.
    assert load_plain(b"]r\xff\xff\xff\x7f.") == []


def test_containers_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plain_pickle, "MOST_CONTAINERS", 10)
    with pytest.raises(PlainPickleError, match="more than 10 lists"):
        load_plain(pickle.dumps([[] for _ in range(10)]))


@pytest.mark.parametrize(
    ("value", "count"),
    [(7, 1), ([], 1), ([[1, 2], (3,), {"a": 4}], 8), ([[1, 2]] * 5, 16), ({"a": [[0] * 9] * 9, "b": 1}, 93)],
)
def test_what_is_shared_is_counted_as_often_as_it_occurs(value: Any, count: int) -> None:
    assert count_copied(load_plain(pickle.dumps(value))) == count


def test_sharing_that_grows_without_end_is_counted_at_once() -> None:
    value: Any = []
    for _ in range(60):
        value = [value, value]
    assert count_copied(value) == 2**61 - 1
    for _ in range(3_000):
        value = [value, value]
    assert count_copied(value) == MOST_COUNTED
    deep: Any = []
    for _ in range(50_000):
        deep = [deep]
    assert count_copied(deep) == 50_001
    with pytest.raises(PlainPickleError, match="contains itself"):
        count_copied(load_plain(b"]q\x00h\x00a."))


def is_plain(value: Any) -> bool:
    return type(value) in (dict, list, tuple, str, bytes, int, float, bool, NoneType)


@given(st.binary())
def test_noise_is_a_plain_value_or_an_error_of_one_kind(noise: bytes) -> None:
    with contextlib.suppress(PlainPickleError):
        assert is_plain(load_plain(b"\x80\x02" + noise))


SNAPSHOT = pickle.dumps(made_training().snapshot())


@given(st.integers(0, len(SNAPSHOT) - 1), st.binary(max_size=6), st.integers(0, 40))
def test_damaged_snapshots_are_read_or_refused(at: int, put: bytes, removed: int) -> None:
    data = SNAPSHOT[:at] + put + SNAPSHOT[at + removed :]
    with contextlib.suppress(PlainPickleError):
        assert is_plain(load_plain(data))


def test_a_snapshot_is_read_as_python_reads_it() -> None:
    assert load_plain(SNAPSHOT) == pickle.loads(SNAPSHOT)  # noqa: S301  made above
