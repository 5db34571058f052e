"""Sends a report to where a team keeps the results of its experiments: TensorBoard, MLflow, Weights & Biases.

To add one, write a function that takes the address and a list of `TrackedRun`, and add a row to `TRACKERS`; other
packages register theirs as entry points of `perfkit.trackers`. Each imports its client on use, which is an extra.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from perfkit.errors import PerfkitError
from perfkit.plugins import Registry
from perfkit.records.report import Report

if TYPE_CHECKING:
    from perfkit.tools.trackers.content import TrackedRun

Send = Callable[[str, "list[TrackedRun]"], list[str]]
"""Takes the address (what follows `NAME:`) and the runs; returns where each can be seen."""


TRACKERS: Final[Registry[Send]] = Registry(
    "perfkit.trackers",
    "tracker",
    {
        "tensorboard": "perfkit.tools.trackers.tensorboard:send",
        "mlflow": "perfkit.tools.trackers.mlflow:send",
        "wandb": "perfkit.tools.trackers.wandb:send",
    },
    lambda _, found: None if callable(found) else "is not a function",
)


def split_address(target: str) -> tuple[str, str] | None:
    """Return the tracker and the address in a target of `-o`, such as `mlflow:URI`; None for the path of a file."""
    name, colon, address = target.partition(":")
    return (name, address) if colon and name in TRACKERS else None


def send(report: Report, name: str, address: str) -> list[str]:
    """Send every run of a report to a tracker; return where each can be seen.

    Raises:
        LaunchEnvironmentError: Its client is not installed.
        StoreError: The tracker refuses the data, or cannot be reached.
        UsageError: The address is invalid.
        PluginError: A plug-in failed.
    """
    from perfkit.tools.trackers.content import tracked_runs  # not for `perfkit analyze --help`

    sender = TRACKERS.load(name)
    with TRACKERS.guarded(name, own=(PerfkitError, OSError)):
        return sender(address, tracked_runs(report))
