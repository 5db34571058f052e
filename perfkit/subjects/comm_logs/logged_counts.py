"""Counts the processes that logged the same, for all libraries whose logs are read."""

from collections.abc import Mapping, Set

from perfkit.records.per_run.comm_logs import LoggedCount


def count_logged(noted: Mapping[tuple[str, str], Set[object]], most: int) -> list[LoggedCount]:
    """Return a row for each name and value, by name, what most processes logged first.

    Args:
        noted: processes by name and value; None among them stands for those that are not known.
        most: number of rows at most.
    """
    rows = [
        LoggedCount(name=name, value=value, processes=len(processes - {None}))
        for (name, value), processes in noted.items()
    ]
    return sorted(rows, key=lambda row: (row.name, -row.processes, row.value))[:most]
