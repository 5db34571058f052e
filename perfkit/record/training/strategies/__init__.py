"""How data-parallel ranks share a model: one strategy per value of `--dp`, and the registry of their names.

A new strategy is one file with a `Strategy` subclass and one row in `STRATEGIES`. Another package adds one through an
entry point of the group `perfkit.strategies`. Does not import torch.
"""

from typing import Any, Final

from perfkit.plugins import Registry
from perfkit.record.training.strategies.base import Strategy


def _find_problem(entry: str, found: Any) -> str | None:
    if not isinstance(found, type) or not issubclass(found, Strategy):
        return "is not a subclass of perfkit.record.training.strategies.base.Strategy"
    return None if getattr(found, "name", None) == entry else f"has the name {getattr(found, 'name', None)!r}"


STRATEGIES: Final[Registry[type[Strategy]]] = Registry(
    "perfkit.strategies",
    "data-parallel strategy",
    {
        "ddp": "perfkit.record.training.strategies.ddp:DDP",
        "zero1": "perfkit.record.training.strategies.zero1:Zero1",
        "zero2": "perfkit.record.training.strategies.fully_sharded:Zero2",
        "zero3": "perfkit.record.training.strategies.fully_sharded:Zero3",
        "hsdp": "perfkit.record.training.strategies.fully_sharded:HybridSharded",
        "deepspeed": "perfkit.record.training.strategies.deepspeed:DeepSpeed",
    },
    _find_problem,
)
