"""Writes a run as the JSON of TALP (DLB 3.5), for TALP-Pages and other tools that read it.

A rank is one CPU there. What TALP has no field for (waiting for input, the host) is part of its communication
efficiency, max(U) / T, so that its parallel efficiency equals perfkit's; perfkit's factors are under `perfkit`.
"""

import json
from collections import defaultdict
from statistics import fmean
from typing import Any, TextIO

from msgspec.structs import asdict

from perfkit.base.formatting import escape_unprintable
from perfkit.errors import UsageError
from perfkit.records.rank import RankReport
from perfkit.records.report import Report
from perfkit.records.run import Efficiency, RunReport


def write(report: Report, stream: TextIO, *, top: int) -> None:  # noqa: ARG001  writes one record
    """Write the one run of `report` to `stream`.

    Raises:
        UsageError: there are several runs, or the run has no efficiency.
    """
    if len(report.runs) != 1:
        raise UsageError(
            f"a TALP file contains one run, not {len(report.runs)}: write one file per run, into one folder"
        )
    run = report.runs[0]
    if run.efficiency is None or run.efficiency.parallel is None or not run.efficiency.t_ns:
        reason = (run.efficiency and run.efficiency.reason) or "all ranks are unknown"
        raise _nothing_to_write(run, reason)
    if not any(step.exposed_ns.compute > 0 for rank in run.ranks if rank.rank is not None for step in rank.steps):
        raise _nothing_to_write(run, "no rank computes")
    stream.write(json.dumps(_document(run, run.efficiency), indent=2) + "\n")


def _nothing_to_write(run: RunReport, reason: str) -> UsageError:
    return UsageError(f"{escape_unprintable(run.run)}: no efficiency to write for TALP: {reason}")


def _document(run: RunReport, efficiency: Efficiency) -> dict[str, Any]:
    ranks = [rank for rank in run.ranks if rank.rank is not None and rank.steps]
    return {
        "dlbVersion": "3.5",
        "timestamp": run.started_at,
        "resources": {"numCpus": len(ranks), "numNodes": len(_by_host(ranks)), "numMpiRanks": len(ranks)},
        "Application": {"Global": _region(ranks, efficiency)},
        "perfkit": {"run": escape_unprintable(run.run), "efficiency": asdict(efficiency)},
    }


def _region(ranks: list[RankReport], efficiency: Efficiency) -> dict[str, Any]:
    useful = [sum(step.exposed_ns.compute for step in rank.steps) for rank in ranks]
    waits = [sum(step.exposed_ns.communication for step in rank.steps) for rank in ranks]
    by_host = _by_host(ranks)
    most, of_host = max(useful), max(fmean(useful[place] for place in places) for places in by_host.values())
    balance, communication = fmean(useful) / most, most / efficiency.t_ns
    return {
        "numCpus": len(ranks),
        "numMpiRanks": len(ranks),
        "numNodes": len(by_host),
        "avgCpus": float(len(ranks)),
        "cycles": 0,
        "instructions": 0,
        "numMeasurements": max(len(rank.steps) for rank in ranks),
        "numMpiCalls": sum(row.count for rank in ranks for row in rank.collectives),
        "numOmpParallels": 0,
        "numOmpTasks": 0,
        "elapsedTime": efficiency.t_ns,
        "usefulTime": sum(useful),
        "mpiTime": sum(waits),
        "ompLoadImbalanceTime": 0,
        "ompSchedulingTime": 0,
        "ompSerializationTime": 0,
        "usefulNormdApp": fmean(useful),
        "mpiNormdApp": fmean(waits),
        "maxUsefulNormdProc": most,
        "maxUsefulNormdNode": of_host,
        "mpiNormdOfMaxUseful": waits[useful.index(most)],
        "parallelEfficiency": balance * communication,
        "mpiParallelEfficiency": balance * communication,
        "mpiCommunicationEfficiency": communication,
        "mpiLoadBalance": balance,
        "mpiLoadBalanceIn": of_host / most,
        "mpiLoadBalanceOut": fmean(useful) / of_host,
        **dict.fromkeys(
            ("ompParallelEfficiency", "ompLoadBalance", "ompSchedulingEfficiency", "ompSerializationEfficiency"), 1.0
        ),
    }


def _by_host(ranks: list[RankReport]) -> dict[str | None, list[int]]:
    """Return the places of ranks in the list, by host."""
    places: dict[str | None, list[int]] = defaultdict(list)
    for place, rank in enumerate(ranks):
        places[rank.host].append(place)
    return places
