"""The models that perfkit trains, one a file, and the registry that names them.

A new workload is one file with a `Workload` subclass and one row in `WORKLOADS`.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, Final

from perfkit.errors import UsageError

if TYPE_CHECKING:
    from workloads.base import Workload

WORKLOADS: Final[dict[str, str]] = {
    "transformer": "workloads.transformer:Transformer",
    "gpt": "workloads.gpt:GPT",
}
"""Name to `module:attribute`; nothing is imported before it is asked for."""


def load(name: str) -> type[Workload[Any]]:
    """Import the workload called `name` (and torch with it).

    Raises:
        UsageError: there is no such workload.
    """
    if name not in WORKLOADS:
        raise UsageError(f"unknown workload {name!r}: choose from {', '.join(WORKLOADS)}")
    module, _, attribute = WORKLOADS[name].partition(":")
    found: type[Workload[Any]] = getattr(importlib.import_module(module), attribute)
    return found
