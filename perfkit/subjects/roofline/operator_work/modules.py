"""Add up the arithmetic of matrix products, and the time of all compute, by module (metrics.md section 18)."""

from collections.abc import Mapping

import numpy as np

from perfkit.engine.attribution.call_paths import PathTable, PathTexts
from perfkit.engine.attribution.views import Located
from perfkit.records.per_rank.operator_work import ModuleWork, add_modules
from perfkit.trace.intervals import Ints

MOST_PATHS = 10_000
"""Most paths of modules that are added up; the others count for the modules above them."""


def tabulate_modules(located: Located, row: Ints, ns: Ints, flops: Mapping[str, Ints]) -> list[ModuleWork]:
    """Return what the classes of modules need and take, each with the modules within it; empty without modules.

    Args:
        located: what the work of the trace belongs to.
        row: rows in `Events` of kernels or operators; shape (t,).
        ns: their time.
        flops: operations by the peak that they are compared with; each of shape (t,).
    """
    if not located.has("module"):
        return []
    table = PathTable()
    path = _paths_of(located, located.paths("class", table), row)
    sums = {name: _inclusive(path, values, table) for name, values in {"": ns, **flops}.items()}
    spent = sums.pop("")
    largest = [number for number in np.argsort(-spent, kind="stable")[:MOST_PATHS].tolist() if number and spent[number]]
    texts = PathTexts(table, located.texts)
    return add_modules(
        ModuleWork(
            path=list(texts[number]),
            total_ns=int(spent[number]),
            flops={name: int(values[number]) for name, values in sums.items() if values[number]},
        )
        for number in largest
    )


def _paths_of(located: Located, path: Ints, row: Ints) -> Ints:
    """Return the path of each row: that of its item; the root for rows that weigh nothing."""
    items = located.items.row
    order = np.argsort(items, kind="stable")
    place = np.minimum(np.searchsorted(items[order], row), max(len(items) - 1, 0))
    if not len(items):
        return np.zeros(len(row), np.int64)
    found = order[place]
    return np.where(items[found] == row, path[found], 0)


def _inclusive(path: Ints, values: Ints, table: PathTable) -> Ints:
    """Return the sum of values over each path and those below it; shape (paths,)."""
    own = np.zeros(len(table.parent), np.int64)
    np.add.at(own, path, values)
    sums, parent = own.tolist(), table.parent.tolist()
    for number in range(len(sums) - 1, 0, -1):  # a path's parent is smaller
        sums[parent[number]] += sums[number]
    return np.array(sums, np.int64)
