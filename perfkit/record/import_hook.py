"""Runs a function right after a module has been imported, without importing it first.

A script may set variables that a package reads when it is loaded (OMP_NUM_THREADS, for example) before it imports the
package: importing it earlier would change the script.
"""

import sys
from collections.abc import Callable, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType


def run_after_import(name: str, then: Callable[[], None]) -> None:
    """Call `then` once the module `name` has been imported; immediately if it already is."""
    if name in sys.modules:
        then()
    else:
        sys.meta_path.insert(0, _ImportHook(name, then))


class _ImportHook(MetaPathFinder):
    """Lets the other finders find the module, and calls `then` after the loader has executed it."""

    def __init__(self, name: str, then: Callable[[], None]) -> None:
        self._name = name
        self._then = then
        self._searching = False

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return the other finders' spec of the awaited module; None for any other module."""
        if fullname != self._name or self._searching:  # another hook of the same module asks this one too
            return None
        self._searching = True
        try:
            specs = (finder.find_spec(fullname, path, target) for finder in list(sys.meta_path) if finder is not self)
            spec = next((spec for spec in specs if spec is not None), None)
        finally:
            self._searching = False
        if spec is not None and spec.loader is not None:
            self._hook(spec.loader)
        return spec

    def _hook(self, loader: Loader) -> None:
        exec_module = loader.exec_module

        def exec_module_and_call(module: ModuleType) -> None:
            vars(loader).pop("exec_module", None)  # the method of the class takes its place again
            exec_module(module)
            sys.meta_path.remove(self)
            self._then()

        loader.exec_module = exec_module_and_call  # type: ignore[method-assign]
