"""Cross-checks: breakdowns of the same run by other tools, each in its own process, registered by name.

To add one, write a `CrossCheckTool` and a row in `CROSS_CHECKS`, or an entry point of the group
`perfkit.cross_checks`. `perfkit analyze --cross-check NAME` runs it.
"""

from collections.abc import Callable
from typing import Any, Final, NamedTuple

from msgspec.structs import replace

from perfkit.errors import LaunchEnvironmentError, PerfkitError
from perfkit.plugins import Registry, instance_of
from perfkit.records.common import Observation
from perfkit.records.run import CrossCheck, RunReport
from perfkit.report.wording.findings import word


class CrossCheckTool(NamedTuple):
    """Another tool that computes a breakdown from the traces of a run."""

    check_installed: Callable[[], Any]
    """Raises `LaunchEnvironmentError` if the tool is missing; called before the analysis."""
    run: Callable[[RunReport], CrossCheck]
    """Returns the tool's figures of a run that has ranks; raises `ExternalToolError` if it fails."""


CROSS_CHECKS: Final[Registry[CrossCheckTool]] = Registry(
    "perfkit.cross_checks",
    "cross-check",
    {"hta": "perfkit.tools.cross_check.hta:HTA"},
    instance_of(CrossCheckTool, "CrossCheckTool"),
)


def with_cross_check(run: RunReport, name: str) -> RunReport:
    """Return a run's report with another tool's breakdown, or with a finding that explains why it is missing.

    Args:
        run: perfkit's report.
        name: a name in `CROSS_CHECKS`.

    Raises:
        LaunchEnvironmentError: the tool is not installed.
    """
    if not run.ranks:
        return run
    tool = CROSS_CHECKS.load(name)
    try:
        with CROSS_CHECKS.guarded(name, f"failed on {run.run}", (PerfkitError,)):
            return replace(run, cross_check=tool.run(run))
    except LaunchEnvironmentError:
        raise
    except PerfkitError as error:
        failed = word(Observation("cross_check_failed", {"error": str(error)}))
    return replace(run, findings=[*run.findings, failed])
