"""A table of paths numbers them as a dictionary of tuples does."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from perfkit.engine.attribution.call_paths import ROOT, PathTable

CALLS = st.lists(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 3)), max_size=6), max_size=6)


@given(CALLS)
def test_paths_of_any_calls(calls: list[list[tuple[int, int]]]) -> None:
    table = PathTable()
    known: dict[tuple[int, ...], int] = {(): ROOT}
    for call in calls:
        paths = list(known)
        extended = [(known[paths[number % len(paths)]], name) for number, name in call]
        wanted = [(*paths[parent], name) for parent, name in extended]
        for parent, name in sorted(set(extended)):
            known.setdefault((*paths[parent], name), len(known))
        columns = np.array(extended, np.int64).reshape(-1, 2)
        assert table.extend(columns[:, 0], columns[:, 1]).tolist() == [known[path] for path in wanted]
    assert table.name.tolist() == [path[-1] if path else -1 for path in known]
    assert table.parent.tolist() == [known[path[:-1]] if path else -1 for path in known]


def test_paths_of_any_depth_are_found_in_few_arrays() -> None:
    table, chain = PathTable(), [ROOT]
    for level in range(1000):
        chain += table.extend(np.array([chain[-1]]), np.array([level])).tolist()
    assert chain == list(range(1001))
    again = table.extend(np.array(chain[:-1]), np.arange(1000))
    assert again.tolist() == chain[1:]
    assert len(table._known) <= 64
