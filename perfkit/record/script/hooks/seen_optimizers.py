"""The optimizers that have stepped in a script: how often, and what the script calls them."""

import os
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from types import FrameType
from typing import Any, Final
from weakref import WeakKeyDictionary

import torch
from msgspec import Struct
from torch.optim import Optimizer

_TORCH: Final = os.path.dirname(torch.__file__ or "")
_MOST: Final = 20
"""Optimizers that are told apart: with one per parameter there are hundreds, all of one class."""


class SeenOptimizer(Struct, kw_only=True):
    """An optimizer that has stepped."""

    class_name: str
    names: tuple[str, ...]
    """Variables and attributes that hold it where it first stepped, outermost first."""
    steps: int = 0
    ended: int = 0
    """Steps of the script that its steps, or skipped updates, have ended."""

    def is_called(self, name: str) -> bool:
        return name == self.class_name or name in self.names


class SeenOptimizers:
    """Counts the steps of every optimizer."""

    def __init__(self) -> None:
        self._by_optimizer: WeakKeyDictionary[Optimizer, SeenOptimizer] = WeakKeyDictionary()
        self._unnamed: dict[str, SeenOptimizer] = {}
        self.all: list[SeenOptimizer] = []
        """Those that are told apart, in the order of their first steps."""

    def add(self, optimizer: Optimizer) -> SeenOptimizer:
        seen = self.find(optimizer)
        seen.steps += 1
        return seen

    def find(self, optimizer: Optimizer) -> SeenOptimizer:
        """Return what is known of `optimizer`, from now on at the latest."""
        seen = self._by_optimizer.get(optimizer)
        if seen is None:
            kind = type(optimizer).__name__
            if len(self.all) < _MOST:
                seen = SeenOptimizer(class_name=kind, names=names_of(optimizer, sys._getframe()))
                self.all.append(seen)
            else:
                seen = self._unnamed.setdefault(kind, SeenOptimizer(class_name=kind, names=()))
            self._by_optimizer[optimizer] = seen
        return seen

    def everyone(self) -> list[SeenOptimizer]:
        """Return those that are told apart, and the rest as one of each class."""
        return [*self.all, *self._unnamed.values()]

    def by_class(self) -> Counter[str]:
        counts: Counter[str] = Counter()
        for seen in self.everyone():
            counts[seen.class_name] += seen.steps
        return counts


def names_of(target: object, frame: FrameType | None) -> tuple[str, ...]:
    """Return the variables of `frame` and its callers, and the attributes of their `self`, that are `target`.

    The outermost come first: inside, several optimizers may have the same name.
    """
    names: dict[str, None] = {}
    for scope in reversed(list(_scopes(frame))):
        names |= dict.fromkeys(name for name, value in list(scope.items()) if _holds(value, target))
        attributes = getattr(scope.get("self"), "__dict__", {})
        if scope.get("self") is not target:
            names |= dict.fromkeys(name for name, value in list(attributes.items()) if _holds(value, target))
    return tuple(name for name in names if name != "self" and not name.startswith("__"))


def _scopes(frame: FrameType | None) -> Iterator[Mapping[str, Any]]:
    """Yield the variables of a frame and its callers, without those of torch and perfkit."""
    own = os.path.dirname(__file__)
    while frame is not None:
        if not frame.f_code.co_filename.startswith((_TORCH, own)):
            yield frame.f_locals
            if frame.f_locals is not frame.f_globals:
                yield frame.f_globals
        frame = frame.f_back


def _holds(value: object, target: object) -> bool:
    """Return whether `value` is `target`, or a library's wrapper around it, as accelerate's."""
    return value is target or getattr(value, "__dict__", {}).get("optimizer") is target
