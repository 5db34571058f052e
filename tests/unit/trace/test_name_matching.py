"""Matching many names at once gives what matching each gives."""

import re

from hypothesis import given
from hypothesis import strategies as st

from perfkit.trace.categories import LEGACY_ANNOTATION, communication_operators
from perfkit.trace.name_matching import starting_with

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
