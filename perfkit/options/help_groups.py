"""Marks of an option's declaration that say where the help shows it."""

from typing import Final

from msgspec import Meta

COMMON: Final = Meta(extra={"common": True})
"""Many people use it: `--help` has it, `--help-all` has every option."""


def _group(name: str) -> Meta:
    return Meta(extra={"group": name})


TRAINING: Final = _group("Training")
PARALLELISM: Final = _group("Parallelism")
RANKS: Final = _group("Devices and ranks")
RECORDING: Final = _group("What is recorded")
MONITOR: Final = _group("Monitor")
HANGS: Final = _group("Hangs")
CAPTURES: Final = _group("Captures")
