"""The workloads that perfkit trains, and the registry of their names.

A new workload is one file with a `Workload` subclass and one row in `WORKLOADS`. Another package adds one through an
entry point in its `pyproject.toml`::

    [project.entry-points."perfkit.workloads"]
    mlp = "mypackage.mlp:MLP"
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from perfkit.plugins import Registry

if TYPE_CHECKING:
    from perfkit_workloads.base import Workload


def _find_problem(entry: str, found: Any) -> str | None:
    from msgspec import Struct

    from perfkit_workloads.base import Workload  # numpy: not needed to list the names

    if not isinstance(found, type) or not issubclass(found, Workload):
        return "is not a subclass of perfkit_workloads.base.Workload"
    missing = [name for name in ("name", "Config", "PRESETS", "DEFAULT_PRESET") if not hasattr(found, name)]
    missing += sorted(getattr(found, "__abstractmethods__", ()))
    if missing:
        return f"does not define {', '.join(missing)}"
    if found.name != entry:
        return f"has the name {found.name!r}"
    config: Any = found.Config
    if not (isinstance(config, type) and issubclass(config, Struct)):
        return "has a Config that is not a msgspec.Struct"
    return None if found.DEFAULT_PRESET in found.PRESETS else f"has no preset {found.DEFAULT_PRESET!r}, its default"


WORKLOADS: Final[Registry[type[Workload[Any]]]] = Registry(
    "perfkit.workloads",
    "workload",
    {
        "transformer": "perfkit_workloads.transformer:Transformer",
        "gpt": "perfkit_workloads.gpt:GPT",
        "classify": "perfkit_workloads.classify:Classify",
    },
    _find_problem,
)
