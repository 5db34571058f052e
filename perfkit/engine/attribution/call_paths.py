"""Call paths: the spans around an instant on a thread, from the outermost to the innermost, as one number each."""

from collections.abc import Iterator, Sequence
from copy import copy
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from perfkit.trace.intervals import Ints, Nesting, SideBySide, combinations

ROOT: Final = 0
"""The path that contains nothing."""
_NAMES: Final = 1 << 31
_MOST_KNOWN: Final = 64
"""Arrays of keys that are searched: spans that are nested very deeply would add one per level."""


def group(values: Ints) -> tuple[Ints, Ints]:
    """Return the distinct values in order, and the place of each value among them.

    `np.unique` (numpy 2.3 and later) takes many times as long where most values differ.
    """
    (keys,), place = combinations(values[np.newaxis])
    return keys, place


class PathTable:
    """Distinct paths: path p is path `parent[p]`, which is smaller than p, extended by `name[p]`.

    There may be millions, where a program puts a counter into its names: as arrays they take a tenth of the memory.
    """

    def __init__(self) -> None:
        self._parent, self._name = [np.full(1, -1, np.int64)], [np.full(1, -1, np.int64)]
        self._size = 1
        self._known: list[tuple[Ints, Ints]] = []
        """Keys, ascending, and the path of each: those that one call added, or of several calls."""

    def extend(self, path: Ints, name: Ints) -> Ints:
        keys, place = group(path * _NAMES + name)
        found = self._find(keys)
        fresh = found < 0
        if fresh.any():
            found[fresh] = self._add(keys[fresh])
        return found[place]

    def _find(self, keys: Ints) -> Ints:
        found = np.full(len(keys), -1, np.int64)
        for known, paths in self._known:
            # A key begins with its parent: calls that extend other paths have other keys.
            if len(keys) and known[0] <= keys[-1] and keys[0] <= known[-1]:
                at = np.minimum(np.searchsorted(known, keys), len(known) - 1)
                found = np.where(known[at] == keys, paths[at], found)
        return found

    def _add(self, keys: Ints) -> Ints:
        parent, name = np.divmod(keys, _NAMES)
        paths = np.arange(self._size, self._size + len(keys))
        self._known.append((keys, paths))
        if len(self._known) > _MOST_KNOWN:
            self._known = [_merged(self._known)]
        self._parent.append(parent)
        self._name.append(name)
        self._size += len(keys)
        return paths

    @property
    def parent(self) -> Ints:
        """The path that each path extends; -1 for the root."""
        return _joined(self._parent)

    @property
    def name(self) -> Ints:
        """The name by which each path extends its parent; -1 for the root."""
        return _joined(self._name)


def _merged(known: list[tuple[Ints, Ints]]) -> tuple[Ints, Ints]:
    keys, paths = (np.concatenate(parts) for parts in zip(*known, strict=True))
    order = np.argsort(keys, kind="stable")
    return keys[order], paths[order]


def _joined(parts: list[Ints]) -> Ints:
    if len(parts) > 1:
        parts[:] = [np.concatenate(parts)]
    return parts[0]


class PathTexts:
    """The names of paths, made when asked for: most are not listed."""

    def __init__(self, table: PathTable, texts: Sequence[str]) -> None:
        self._table, self._texts = table, texts

    def __getitem__(self, path: int) -> tuple[str, ...]:
        names: list[str] = []
        while path > 0:
            names.append(self._texts[self._table.name[path]])
            path = int(self._table.parent[path])
        return tuple(reversed(names))


def sum_by(key: Ints, values: Ints, count: int) -> Ints:
    """Return the sum of values by key, exactly; shape (count,)."""
    total = np.zeros(count, np.int64)
    np.add.at(total, key, values)
    return total


class ThreadSpans:
    """Spans of one kind on all threads; every column has shape (s,)."""

    def __init__(self, thread: NDArray[Any], start_ns: Ints, end_ns: Ints, name: NDArray[Any]) -> None:
        self.start_ns, self._name = start_ns, name
        threads = thread.astype(np.int64)
        self._axis = SideBySide(threads, start_ns, end_ns)
        self._nesting = Nesting(self._axis.place(threads, start_ns), self._axis.place(threads, end_ns))

    def renamed(self, names: Ints) -> "ThreadSpans":
        """Return the same spans with `names[name]` for each name."""
        other = copy(self)
        other._name = names[self._name] if len(self._name) else self._name
        return other

    def at(self, thread: Ints, instant: Ints) -> Ints:
        """Return the index of the innermost span at each instant on its thread, or -1; thread -1 has none."""
        return self._nesting.at(self._axis.place(thread, instant))

    def paths(self, spans: Ints, table: PathTable) -> Ints:
        """Return the path of each span (-1: `ROOT`), from the outermost one around it to itself."""
        path = np.full(len(self._name) + 1, ROOT, np.int64)  # the last is that of -1
        parent = self._with_ancestors(spans)
        for level in _levels(parent):
            path[level] = table.extend(path[parent[level]], self._name[level])
        return np.asarray(path[spans])

    def _with_ancestors(self, spans: Ints) -> Ints:
        """Return the parent of each span, -1 without one; -2 for those that are around none of `spans`."""
        parent = np.full(len(self._name), -2, np.int64)
        frontier = self._distinct(spans[spans >= 0])
        while len(frontier):
            outer = self._nesting.parents(frontier)
            parent[frontier] = outer
            outer = outer[outer >= 0]
            frontier = self._distinct(outer[parent[outer] == -2])
        return parent

    def _distinct(self, spans: Ints) -> Ints:
        """Return the distinct spans in order; not by `np.unique`, for the reason that `group` has."""
        used = np.zeros(len(self._name), np.bool_)
        used[spans] = True
        return np.flatnonzero(used)


def _levels(parent: Ints) -> Iterator[Ints]:
    """Yield the spans without a parent, then their children, and so on."""
    used = np.flatnonzero(parent >= -1)
    order = used[np.argsort(parent[used], kind="stable")]
    keys = parent[order]
    level = order[: np.searchsorted(keys, 0)]
    while len(level):
        yield level
        first, last = np.searchsorted(keys, level, "left"), np.searchsorted(keys, level, "right")
        count = last - first
        before = np.repeat(np.cumsum(count) - count, count)
        level = order[np.repeat(first, count) + np.arange(int(count.sum())) - before]
