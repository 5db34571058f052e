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
    from workloads.base import Workload


def _is_workload(found: Any) -> bool:
    from workloads.base import Workload  # numpy: not needed to list the names

    return isinstance(found, type) and issubclass(found, Workload)


WORKLOADS: Final[Registry[type[Workload[Any]]]] = Registry(
    "perfkit.workloads",
    "workload",
    {
        "transformer": "workloads.transformer:Transformer",
        "gpt": "workloads.gpt:GPT",
    },
    _is_workload,
)
