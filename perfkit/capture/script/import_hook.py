"""Do something right after a module has been imported, without importing it oneself.

A script may set what a package reads when it is loaded (OMP_NUM_THREADS, say) before it imports it: to import the
package first would change the script.
"""

import sys
from collections.abc import Callable, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType


def run_after_import(name: str, then: Callable[[], None]) -> None:
    """Call `then` once the top-level module `name` has been imported; at once if it is there already."""
    if name in sys.modules:
        then()
    else:
        sys.meta_path.insert(0, _ImportHook(name, then))


class _ImportHook(MetaPathFinder):
    """Leaves finding the module to the other finders, and calls `then` after the loader has run it."""

    def __init__(self, name: str, then: Callable[[], None]) -> None:
        self._name = name
        self._then = then

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return the others' spec of the module that is awaited; None for any other."""
        if fullname != self._name:
            return None
        found = (finder.find_spec(fullname, path, target) for finder in sys.meta_path if finder is not self)
        spec = next((spec for spec in found if spec is not None), None)
        if spec is not None and spec.loader is not None:
            self._follow(spec.loader)
        return spec

    def _follow(self, loader: Loader) -> None:
        run = loader.exec_module

        def run_and_tell(module: ModuleType) -> None:
            del loader.exec_module  # this attribute of the object: the class's own comes to light again
            run(module)
            sys.meta_path.remove(self)
            self._then()

        loader.exec_module = run_and_tell  # type: ignore[method-assign]
