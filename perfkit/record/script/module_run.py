"""`perfkit run -m package.module`: a module runs as `python -m` runs it."""

import os
import sys
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import CodeType, ModuleType


class ModuleName(str):
    """The name of a module, where the path of a script could be."""

    @property
    def workload(self) -> str:
        """Name of the workload: the module's last name, or its package's if that is `__main__`."""
        return self.removesuffix(".__main__").rpartition(".")[2]


def prepare_module(name: ModuleName, main: ModuleType) -> CodeType:
    """Make `main` what `__main__` is under `python -m NAME`, with `sys.path` and `sys.argv`; returns the code to run.

    As there, packages around the module are imported first.

    Raises:
        SystemExit: There is no such module; printed as Python prints it.
    """
    if not sys.flags.safe_path:
        sys.path[0] = os.getcwd()
    arguments = sys.argv[1:]
    sys.argv[0] = "-m"
    spec, code = _find(name)
    sys.argv = [str(spec.origin), *arguments]
    main.__file__ = spec.origin
    main.__loader__ = spec.loader
    main.__package__ = spec.parent
    main.__spec__ = spec
    vars(main)["__cached__"] = spec.cached
    return code


def _find(name: str) -> tuple[ModuleSpec, CodeType]:
    try:
        spec = find_spec(name)
    except ModuleNotFoundError as error:
        if error.name is None or not name.startswith(f"{error.name}."):
            raise  # a package around it is there, and imports something that is not
        raise _not_found(f"No module named {name}") from None
    except ValueError:  # a relative name
        spec = None
    if spec is None:
        raise _not_found(f"No module named {name}")
    if spec.submodule_search_locations is not None:
        if name.endswith("__main__") or find_spec(f"{name}.__main__") is None:
            raise _not_found(f"No module named {name}.__main__; '{name}' is a package and cannot be directly executed")
        return _find(f"{name}.__main__")
    code = getattr(spec.loader, "get_code", lambda _: None)(name)
    if code is None:
        raise _not_found(f"No code object available for {name}")
    return spec, code


def _not_found(text: str) -> SystemExit:
    return SystemExit(f"{sys.executable}: {text}")
