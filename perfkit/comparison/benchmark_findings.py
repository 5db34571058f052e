"""What makes the times of a benchmark uncertain, whatever it measures."""

from collections.abc import Iterator, Sequence
from typing import Any

from perfkit.schema.common import Finding, Severity
from perfkit.stats.bootstrap import FEWEST_RUNS
from perfkit.util.formatting import escape_unprintable


def find_few_repeats(repeats: int) -> Iterator[Finding]:
    """Yield a finding if so many repeats do not show how much times vary."""
    if repeats < FEWEST_RUNS:
        message = (
            f"fewer than {FEWEST_RUNS} repeats do not show how much times vary: use --repeats {FEWEST_RUNS} or more"
        )
        yield Finding(code="too_few_repeats", severity="info", message=message)


def find_shared_cores(hosts: Sequence[str], cores: Sequence[int | None]) -> Iterator[Finding]:
    """Yield a finding per host with more ranks than cores.

    Args:
        hosts: Host of each rank.
        cores: Cores of its host, of each rank; None if unknown.
    """
    for host, count in dict(zip(hosts, cores, strict=True)).items():
        ranks = hosts.count(host)
        if count is not None and ranks > count:
            message = (
                f"the {ranks} ranks on {escape_unprintable(host)} share {count} core{'s' if count > 1 else ''}: times "
                "include waiting for a core"
            )
            yield Finding(code="oversubscribed", severity="warning", message=message)


def find_other_settings(before: Any, after: Any, names: Sequence[str], severity: Severity) -> Iterator[Finding]:
    """Yield a finding if fields of these names differ between two benchmarks."""
    values = ((name, getattr(before, name), getattr(after, name)) for name in names)
    found = [f"{name} ({old} / {new})" for name, old, new in values if old != new]
    if found:
        message = f"before and after differ in {', '.join(found)}"
        yield Finding(code="configurations_differ", severity=severity, message=message)


def find_other_versions(before: dict[str, str], after: dict[str, str]) -> Iterator[Finding]:
    """Yield a finding if software that both benchmarks used differs."""
    versions = [f"{name} ({old} / {after[name]})" for name, old in before.items() if after.get(name, old) != old]
    if versions:
        yield Finding(code="versions_differ", severity="info", message=f"versions differ: {', '.join(versions)}")
