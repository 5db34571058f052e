"""Pickles of plain data are read as Python reads them; anything else is refused, and nothing in it is executed."""

import contextlib
import os
import pickle
from collections import OrderedDict
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfkit.diagnosis.plain_pickle import NotPlainError, load_plain

LEAVES = st.none() | st.booleans() | st.integers(-(2**63), 2**63) | st.floats(allow_nan=False) | st.text()
PLAIN = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner) | st.tuples(inner, inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)


class Evil:
    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, ("touch /tmp/perfkit-was-here",)


@given(PLAIN, st.integers(2, 5))
def test_plain_data_is_read_as_python_reads_it(value: Any, protocol: int) -> None:
    assert load_plain(pickle.dumps(value, protocol)) == value


@given(st.binary(), st.integers(3, 5))
def test_bytes_are_read_from_protocols_that_have_them(value: bytes, protocol: int) -> None:
    assert load_plain(pickle.dumps(value, protocol)) == value


@pytest.mark.parametrize(
    "value", [Evil(), OrderedDict(), print, {1, 2}, {"entries": [Evil()]}, bytearray(3), complex(1, 2)]
)
@pytest.mark.parametrize("protocol", [0, 2, 4, 5])
def test_anything_else_is_refused(value: Any, protocol: int) -> None:
    with pytest.raises(NotPlainError):
        load_plain(pickle.dumps(value, protocol))


@given(PLAIN, st.data())
def test_damage_is_an_error_of_one_kind(value: Any, data: st.DataObject) -> None:
    good = bytearray(pickle.dumps(value, 4))
    for _ in range(data.draw(st.integers(1, 4))):
        good[data.draw(st.integers(0, len(good) - 1))] = data.draw(st.integers(0, 255))
    cut = bytes(good[: data.draw(st.integers(0, len(good)))])
    for damaged in (bytes(good), cut):
        with contextlib.suppress(NotPlainError):
            load_plain(damaged)


@given(st.binary())
def test_noise_is_an_error_of_one_kind(noise: bytes) -> None:
    with contextlib.suppress(NotPlainError):
        load_plain(b"\x80\x02" + noise)


def test_a_number_in_the_file_allocates_nothing() -> None:
    assert load_plain(b"\x80\x02Nr\xff\xff\xff\x7f.") is None, "an index of the memo, for which pickle takes 16 GiB"
    for length in (b"X\xff\xff\xff\x7f", b"\x8b\xff\xff\xff\x7f", b"\x8d" + b"\xff" * 8):
        with pytest.raises(NotPlainError):
            load_plain(b"\x80\x02" + length + b".")
