"""Decimal microseconds become nanoseconds exactly, at any scale."""

from decimal import ROUND_HALF_EVEN, Decimal

from hypothesis import example, given
from hypothesis import strategies as st

from perfkit.trace.timestamps import LIMIT_NS, to_nanoseconds

microseconds = st.decimals(min_value=-(10**15), max_value=2 * 10**15, places=6).map(lambda number: f"{number:f}")
plain = st.integers(-(10**9), 2 * 10**15).map(str)
scientific = st.floats(-1e12, 1e12).map(repr)


@given(st.lists(st.one_of(microseconds, plain, scientific), min_size=1, max_size=20))
@example(["1700000000123456.789", "1700000000123456.7895", "0.0005", "0.0015", "-0.0005", "1e3", "1.5E-3"])
def test_equals_exact_decimal_arithmetic(texts: list[str]) -> None:
    values, valid = to_nanoseconds([text.encode() for text in texts])
    expected = [int((Decimal(text) * 1000).to_integral_value(ROUND_HALF_EVEN)) for text in texts]
    assert values.tolist() == expected
    assert valid.all()


def test_quoted_numbers_are_numbers() -> None:
    values, valid = to_nanoseconds([b'"12.5"', b'" 7 "'])
    assert values.tolist() == [12500, 7000]
    assert valid.all()


def test_what_is_no_time_is_said_to_be_none() -> None:
    texts = [b"", b"null", b"NaN", b"Infinity", b"1e999999999", b"--5", b"1.2.3", b"-", b".", b"9" * 60, b'"x"']
    values, valid = to_nanoseconds(texts)
    assert not valid.any()
    assert not values.any()


def test_values_out_of_reach_do_not_wrap() -> None:
    beyond = str(LIMIT_NS // 1000 + 1).encode()
    values, valid = to_nanoseconds([beyond, b"9999999999999999.999", b"999999999999999999"])
    assert not valid.any()
    assert not values.any()


def test_nothing_gives_nothing() -> None:
    values, valid = to_nanoseconds([])
    assert values.shape == valid.shape == (0,)
