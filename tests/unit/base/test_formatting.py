"""Formatting of numbers and names."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfkit.base import formatting as units


@pytest.mark.parametrize(
    ("ns", "shown"),
    [
        (None, "–"),
        (0, "0"),
        (1, "1 ns"),
        (999, "999 ns"),
        (1_000, "1.00 µs"),
        (12_345, "12.3 µs"),
        (999_499, "999 µs"),
        (999_500, "1.00 ms"),
        (607_360_000, "607 ms"),
        (9_996_000_000, "10.0 s"),
        (123_456_000_000_000, "123456 s"),
        (-1_720_000, "-1.72 ms"),
        (1.5, "1.50 ns"),
    ],
)
def test_duration(ns: float | None, shown: str) -> None:
    assert units.duration(ns) == shown


@pytest.mark.parametrize(("ns", "shown"), [(5_000, "+5.00 µs"), (0, "0"), (-5_000, "-5.00 µs")])
def test_difference(ns: float, shown: str) -> None:
    assert units.difference(ns) == shown


@pytest.mark.parametrize(
    ("count", "shown"), [(None, "–"), (0, "0 B"), (999, "999 B"), (4_194_304, "4.19 MB"), (10**12, "1.00 TB")]
)
def test_size_is_decimal(count: float | None, shown: str) -> None:
    assert units.size(count) == shown


@pytest.mark.parametrize(
    ("value", "shown"),
    [(0, "0"), (0.25, "0.25"), (1.667, "1.67"), (12, "12"), (-3.14159, "-3.14"), (999.6, "1,000"), (1069.7, "1,070")],
)
def test_figures_have_no_exponent(value: float, shown: str) -> None:
    assert units.figures(value) == shown


@pytest.mark.parametrize(
    ("value", "unit", "shown"),
    [
        (None, "samples", "–"),
        (12.3456, "samples", "12.3 samples/s"),
        (12_345.6, "tokens", "12,346 tokens/s"),
        (1.234e12, "FLOP", "1.23 TFLOP/s"),
        (87.4e6, "B", "87.4 MB/s"),
    ],
)
def test_rate(value: float | None, unit: str, shown: str) -> None:
    assert units.rate(value, unit) == shown


@given(st.lists(st.integers(0, 10**18), min_size=1, max_size=8))
def test_shares_add_up_to_100(parts: list[int]) -> None:
    shown = units.format_percents(parts)
    if sum(parts) == 0:
        assert set(shown) == {units.MISSING}
        return
    tenths = [int(s.removesuffix(" %").replace(".", "")) for s in shown]
    assert sum(tenths) == 1000
    for part, shown_tenths in zip(parts, tenths, strict=True):
        assert abs(1000 * part - shown_tenths * sum(parts)) <= sum(parts)


@pytest.mark.parametrize(
    ("numbers", "shown"), [([], ""), ([3], "3"), ([2, 0, 1, 1], "0-2"), ([0, 1, 5, 7, 8, 9], "0-1, 5, 7-9")]
)
def test_ranges(numbers: list[int], shown: str) -> None:
    assert units.ranges(numbers) == shown


def test_one_that_is_left_out_is_singular() -> None:
    assert [units.left_out(count, "row") for count in (1, 2, 1000)] == ["1 more row", "2 more rows", "1,000 more rows"]


@given(st.text() | st.text(st.characters(categories=["Cc", "Cf", "Cs", "Zl", "Zp"])))
def test_plain_text_is_printable_and_encodable(text: str) -> None:
    shown = units.escape_unprintable(text)
    assert shown.isprintable()
    shown.encode("utf-8")
    assert text != shown or text.isprintable()


def test_times_of_charts_are_exact_to_the_nanosecond_and_changes_have_a_sign() -> None:
    assert (units.in_ms(1_234_567), units.in_ms(0.4)) == (1.234567, 0.0)
    assert (units.percent_change(1.05), units.percent_change(0.5)) == ("+5.0 %", "-50.0 %")
