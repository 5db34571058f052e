"""Marks of an option's declaration that say where and how the help shows it."""

from typing import Final

from msgspec import Meta

COMMON: Final = Meta(extra={"common": True})
"""Many people use it: `--help` has it, `--help-all` has every option."""


def group(name: str) -> Meta:
    return Meta(extra={"group": name})


def names(*written: str) -> Meta:
    """Return the mark of an option whose names do not follow from the field's; of a switch, it has no `--no-`."""
    return Meta(extra={"names": written})


def metavar(text: str) -> Meta:
    """Return the mark of an option whose value is shown as `text`, not by its type."""
    return Meta(extra={"metavar": text})


TRAINING: Final = group("Training")
PARALLELISM: Final = group("Parallelism")
RANKS: Final = group("Devices and ranks")
RECORDING: Final = group("What is recorded")
MONITOR: Final = group("Monitor")
HANGS: Final = group("Hangs")
CAPTURES: Final = group("Captures")
