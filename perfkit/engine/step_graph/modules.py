"""The calls of modules that parts of a graph belong to, as a tree."""

from collections.abc import Sequence
from typing import Final

from msgspec import Struct

from perfkit.trace.module_names import class_of, shown_class

NO_MODULE: Final = -1
"""Of parts of traces that contain no calls of modules."""


class GraphModule(Struct, frozen=True, array_like=True, gc=False):
    """A module, as one that another one calls."""

    parent: int
    """Index of the module that calls it, which is smaller; -1 for none."""
    instance: str
    """Class and number; or in parentheses what belongs to no module, such as `(optimizer)`."""
    names: tuple[str, ...] = ()
    """Qualified names; empty if unknown."""

    @property
    def is_module(self) -> bool:
        """Whether it is a module, not what belongs to none."""
        return not self.instance.startswith("(")


def class_paths(modules: Sequence[GraphModule]) -> list[str]:
    """Return for each module the classes of the modules around it and its own: `GPT.Block.Attention`."""
    paths: list[str] = []
    for module in modules:
        outer = f"{paths[module.parent]}." if module.parent >= 0 else ""
        paths.append(outer + class_of(module.instance))
    return paths


def shown_paths(modules: Sequence[GraphModule]) -> list[tuple[str, ...]]:
    """Return what each module is called after those around it; modules that differ in numbers only are called alike."""
    paths: list[tuple[str, ...]] = []
    for module in modules:
        outer = paths[module.parent] if module.parent >= 0 else ()
        text = shown_class(module.instance, module.names) if module.is_module else module.instance
        paths.append((*outer, text))
    return paths
