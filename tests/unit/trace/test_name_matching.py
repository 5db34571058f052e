"""Matching many names at once gives what matching each gives."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfkit.trace.categories import LEGACY_ANNOTATION, communication_operators
from perfkit.trace.name_matching import NameShapes, starting_with, with_zeros

NAMES = st.lists(
    st.one_of(
        st.sampled_from(
            ["", "gloo:all_reduce", "c10d::send", "xc10d::", "ProfilerStep#7", "ProfilerStep#7x", "a\nc10d::"]
        ),
        st.text(max_size=8),
    )
)


@given(NAMES)
def test_the_same_as_one_call_per_name(names: list[str]) -> None:
    for pattern in (communication_operators(), LEGACY_ANNOTATION, re.compile("a|b$")):
        assert starting_with(names, pattern).tolist() == [pattern.match(name) is not None for name in names]


NUMBERED = st.lists(
    st.one_of(
        st.text("ab0123:_", max_size=6),
        st.sampled_from(["c10d::send", "c20d::send", "stage1x", "stage3x", "ärger²7", "\ud8001", "a1\nb2", ""]),
    ),
    max_size=8,
)
PATTERNS = [
    r"c10d::|_c10d::",
    r"stage[12]x",
    r"a\d+$",
    r"\w+_$",
    r"(\w++:)*b",
    r"a{2}",
    r"[^1\n]*b",
    r"(?!1)\w",
    r"(?P<a1>a)?(?P<a2>1)b",
    r"(?P<n>\d)(?P=n)",
    r"\x31",
    r"1?+1",
    r"[+-5]b",
    r".\d.",
]


@pytest.mark.parametrize("pattern", [*map(re.compile, PATTERNS), communication_operators(), LEGACY_ANNOTATION])
@given(names=NUMBERED)
def test_shapes_decide_as_the_names_do(pattern: re.Pattern[str], names: list[str]) -> None:
    shapes = NameShapes(names)
    assert [shapes.distinct[place] for place in shapes.of] == [re.sub("[0-9]", "0", name) for name in names]
    assert shapes.starting_with(pattern).tolist() == ([pattern.match(name) is not None for name in names] or [False])
    assert shapes.containing(pattern).tolist() == ([pattern.search(name) is not None for name in names] or [False])


@given(st.lists(NUMBERED, max_size=3))
def test_shapes_of_parts_are_those_of_the_whole(parts: list[list[str]]) -> None:
    names = [name for part in parts for name in part]
    whole, joined = NameShapes(names), NameShapes(names, [NameShapes(part) for part in parts])
    assert joined.distinct == whole.distinct
    assert joined.of.tolist() == whole.of.tolist()


def test_a_pattern_without_digits_is_matched_once_per_shape() -> None:
    without = re.compile(r"kernel_\d+")
    assert with_zeros(without) is without
    assert with_zeros(re.compile("stage[12]")) == re.compile("stage[00]")
    assert NameShapes([f"kernel_{n}" for n in range(100)]).distinct == ("kernel_0", "kernel_00")
