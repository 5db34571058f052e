"""Key facts of one run, shown before its tables, and its findings."""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Final, NamedTuple

from perfkit.base.formatting import (
    MISSING,
    difference,
    duration,
    escape_unprintable,
    format_percent,
    plural,
    ranges,
    rate,
    size,
    whole_percent,
)
from perfkit.records.aggregate import step_time_ns, steps_ns
from perfkit.records.common import UNNAMED, Finding, Severity
from perfkit.records.findings import INCIDENT_CODES
from perfkit.records.manifest import Injection, SamplesFrom, Throughput
from perfkit.records.report import Report
from perfkit.records.run import ProfilerCost, RunReport
from perfkit.report.content.document import FindingLine, KeyValue
from perfkit.tables import aggregates as sums
from perfkit.tables.labels import INFERRED
from perfkit.tables.specification import Listing, Row, data, data_of

FINDINGS_A_CODE = 5
FILES_A_FINDING = 4
"""Listed in full up to this number; the rest is counted."""

_MUCH = 0.05
"""Share of exposed communication from which it is told that its waiting is unknown."""
_ORDER: tuple[Severity, ...] = ("error", "warning", "info")


def key_values(run: RunReport) -> list[KeyValue]:
    """Return the facts of a run; unknown ones that need no explanation are left out."""
    lines = [
        *_warnings(run),
        _workload(run),
        _ranks(run),
        _steps(run),
        _waiting(run),
        *_throughput(run.throughput, run.batch_size_from),
        *_cost(run.profiler_cost),
        *_injections(run.injections),
        *_state(run),
    ]
    return [line for line in lines if line is not None]


def _workload(run: RunReport) -> KeyValue | None:
    described = described_workload(run)
    return KeyValue("workload", described) if described else None


def described_workload(run: RunReport) -> str:
    """Return what ran and where its input came from; empty for a foreign trace."""
    if run.workload is None:
        return ""
    preset = run.config.get("preset") if run.config else None
    named = escape_unprintable(run.workload) + (f" ({escape_unprintable(str(preset))})" if preset else "")
    if run.source in (None, UNNAMED):
        return named
    return f"{named}, input from {input_of(run)}"


def input_of(run: RunReport) -> str:
    """Return a run's data source, and how it was read if that is an option of the source."""
    config = run.config or {}
    loads = run.data_loading
    source = run.source or (loads.source if loads else None)
    parts = [MISSING if source in (None, UNNAMED) else escape_unprintable(source)]
    if run.source not in (None, "memory") and "read" in config:
        parts.append(escape_unprintable(str(config["read"])))
    if workers := config.get("num_workers"):
        parts.append(f"{escape_unprintable(str(workers))} workers")
    return ", ".join(parts)


def _ranks(run: RunReport) -> KeyValue:
    known = [r.rank for r in run.ranks if r.rank is not None]
    unknown = len(run.ranks) - len(known)
    word = "rank" if len(known) == 1 else "ranks"
    named = [f"{word} {ranges(known)}"] if known and len(known) < run.world_size else []
    named += [f"{unknown} of unknown rank"] if unknown else []
    which = f" ({', '.join(named)})" if named else ""
    tone = "warning" if len(run.ranks) < run.world_size else "plain"
    return KeyValue("ranks", ", ".join([f"{ranks_of_world(run)}{which}", *_devices(run)]), tone)  # type: ignore[arg-type]


def described_ranks(run: RunReport) -> str:
    """Return how many ranks ran, on what."""
    if not run.ranks:
        return f"{run.world_size} rank{'' if run.world_size == 1 else 's'} without traces"
    if _world_size_unknown(run):
        return ", ".join([f"traces of {len(run.ranks)} rank{'' if len(run.ranks) == 1 else 's'}", *_devices(run)])
    is_part = run.is_partial
    ranks = f"rank{'' if len(run.ranks) == 1 and not is_part else 's'}"
    counted = f"{ranks_of_world(run) if is_part else len(run.ranks)} {ranks}"
    return ", ".join([counted, *_devices(run)])


def ranks_of_world(run: RunReport) -> str:
    """Return how many ranks have traces, of how many."""
    if _world_size_unknown(run):
        return f"{len(run.ranks)} of unknown"
    return f"{len(run.ranks)} of {run.world_size}" if len(run.ranks) <= run.world_size else f"{len(run.ranks)}"


def _world_size_unknown(run: RunReport) -> bool:
    return any(finding.code == "world_size_unknown" for finding in run.findings)


def _devices(run: RunReport) -> list[str]:
    hosts = {r.host for r in run.ranks if r.host}
    return [
        *device_types(run),
        *sorted({escape_unprintable(r.backend) for r in run.ranks if r.backend}),
        *([f"{len(hosts)} hosts"] if len(hosts) > 1 else []),
    ]


def device_types(run: RunReport) -> list[str]:
    """Return the types of device that the ranks worked on: where the device's activity is lost, it is not the CPU."""
    found = [r.device for r in run.ranks]
    lost = sum(finding.code == "no_device_events" for finding in run.findings)
    without = "device not recorded" if lost >= found.count("cpu") else "cpu"
    return sorted({without if one == "cpu" else one for one in found})


def _waiting(run: RunReport) -> KeyValue | None:
    """Return the range of exposed waits over ranks: the rank the others wait for waits least.

    Waits in collectives that are in progress at once overlap: all together they may be longer than the step.
    """
    if run.cross_rank is None or not run.cross_rank.waits_known or len(run.cross_rank.rank_waits) < 2:
        return None
    steps = max((len(rank.steps) for rank in run.ranks), default=0) or 1
    least, most = (choose(run.cross_rank.rank_waits, key=lambda wait: wait.exposed_wait_ns) for choose in (min, max))
    return KeyValue(
        "wait per step",
        f"exposed, in collectives: min {duration(least.exposed_wait_ns / steps)} (rank {least.rank}), "
        f"max {duration(most.exposed_wait_ns / steps)} (rank {most.rank}){_unknown_waiting(run)}",
    )


def _unknown_waiting(run: RunReport) -> str:
    """Return of how much communication it is not known whether it is waiting: broadcasts and the like, for most."""
    efficiency = run.efficiency
    communication_ns = efficiency.wait_ns + efficiency.transfer_ns if efficiency else 0
    if not efficiency or not communication_ns or efficiency.unmatched_ns <= _MUCH * communication_ns:
        return ""
    return f"; not known of {whole_percent(efficiency.unmatched_ns / communication_ns)} of exposed communication"


def _steps(run: RunReport) -> KeyValue:
    numbers = {s.step for s in sums.steps_of(run)}
    known = [n for n in numbers if n is not None]
    if not numbers:
        return KeyValue("steps", "; ".join(["none recorded", *_timed(run)]))
    if not known:
        return KeyValue("steps", "none marked: the whole trace counts as one step")
    time = duration(sums.step_time(run))
    each = f"{time} (on its slowest rank)" if len(known) == 1 else f"mean {time} (on the slowest rank)"
    return KeyValue("profiled steps", f"{len(known)} ({ranges(known)}), {each}")


def _timed(run: RunReport) -> list[str]:
    """Return the time of steps that were only timed, unless the throughput or the monitor's table tells it."""
    plain = step_time_ns(steps_ns(run, "plain"))
    told = plain is None or run.throughput is not None or run.monitor is not None
    return [] if told else [f"mean {duration(plain)} without the profiler"]


def _throughput(known: Throughput | None, samples_from: SamplesFrom | None) -> list[KeyValue]:
    if known is None:
        return []
    where = "without the profiler" if known.measured_on == "plain" else "with the profiler"
    rates = [rate(known.samples_per_s, "samples")]
    rates += [rate(known.tokens_per_s, "tokens")] if known.tokens_per_s is not None else []
    rates.append(f"step {duration(known.step_ns)} {where}")
    inferred = f"; samples inferred from {INFERRED[samples_from]}" if samples_from and samples_from in INFERRED else ""
    lines = [KeyValue("throughput", ", ".join(rates) + inferred)]
    if known.flops_per_s is not None:
        reason = f" ({escape_unprintable(known.mfu_reason)})" if known.mfu_reason else ""
        mfu = f"no MFU{reason}" if known.mfu is None else f"MFU {format_percent(known.mfu)}"
        lines.append(KeyValue("model FLOPs", f"{rate(known.flops_per_s, 'FLOP')}, {mfu}"))
    return lines


def _cost(cost: ProfilerCost | None) -> list[KeyValue]:
    if cost is None:
        return []
    steps = f" ({duration(cost.recorded_step_ns)} vs. {duration(cost.plain_step_ns)} without)"
    files = f" ({size(cost.trace_bytes)})" if cost.trace_bytes else ""
    writing = f"; writing traces{files} took {duration(cost.writing_ns)} between steps" if cost.writing_ns else ""
    if cost.ratio is None or cost.added_ns is None:
        reason = escape_unprintable(cost.reason or "not measured")
        both = cost.plain_step_ns is not None and cost.recorded_step_ns is not None
        return [KeyValue("profiler overhead", (reason + steps if both else f"unknown: {reason}") + writing)]
    return [KeyValue("profiler overhead", f"×{cost.ratio:.2f} per step, {difference(cost.added_ns)}{steps}{writing}")]


def _injections(injections: list[Injection]) -> list[KeyValue]:
    if not injections:
        return []
    delays = [
        f"{duration(i.delay_ns)} in {i.phase} on " + ("every rank" if i.rank is None else f"rank {i.rank}")
        for i in injections
    ]
    return [KeyValue("injected faults", f"deliberate: {'; '.join(delays)}", "warning")]


def _state(run: RunReport) -> list[KeyValue]:
    if run.state in (None, "completed"):
        return []
    return [KeyValue("state", f"{escape_unprintable(run.state)}: the run did not finish", "error")]


def _warnings(run: RunReport) -> list[KeyValue]:
    counts = Counter(f.severity for f in findings_beyond_verdict(run))
    serious = [f"{counts[s]} {s}{'s' if counts[s] > 1 else ''}" for s in ("error", "warning") if counts[s]]
    if not serious:
        return []
    tone = "error" if counts["error"] else "warning"
    return [KeyValue("data quality", f"{', '.join(serious)}: see the findings below", tone)]  # type: ignore[arg-type]


def findings(run: RunReport) -> list[FindingLine]:
    """Return the findings of a run, except the one that its verdict reports."""
    return finding_lines(findings_beyond_verdict(run))


def finding_lines(findings: Iterable[Finding]) -> list[FindingLine]:
    """Return findings as lines, the most severe first, of these what happened.

    Findings with the same message for several ranks or files are one line.
    """
    groups: dict[tuple[Severity, str, str], list[Finding]] = defaultdict(list)
    for finding in sorted(findings, key=_place):
        groups[finding.severity, finding.code, finding.message].append(finding)
    of_a_code: dict[tuple[Severity, str], list[str]] = defaultdict(list)
    for (severity, code, message), group in groups.items():
        of_a_code[severity, code].append(f"{escape_unprintable(message)}{_where(group)}")
    return [
        FindingLine(severity, f"{escape_unprintable(code)}: {text}")
        for (severity, code), texts in of_a_code.items()
        for text in _first_of(texts, FINDINGS_A_CODE)
    ]


def _place(finding: Finding) -> tuple[int, bool, str]:
    return _ORDER.index(finding.severity), finding.code not in INCIDENT_CODES, finding.code


def findings_beyond_verdict(run: RunReport) -> list[Finding]:
    """Return the findings of a run, except the one that its verdict reports."""
    of_traces = "straggler" if run.verdict.bound == "imbalance" else None
    in_verdict = of_traces if run.ranks else "no_traces"
    return [finding for finding in run.findings if finding.code != in_verdict]


def _where(group: list[Finding]) -> str:
    """Return the ranks and files of a group of equal findings, except those that their message names."""
    message = group[0].message
    ranks = [f.rank for f in group if f.rank is not None and not re.search(rf"\brank {f.rank}\b", message)]
    word = "rank" if len(ranks) == 1 else "ranks"
    files = [escape_unprintable(f.file) for f in group if f.file and f.file not in message]
    where = [*([f"{word} {ranges(ranks)}"] if ranks else []), *_first_of(files, FILES_A_FINDING)]
    return f" ({', '.join(where)})" if where else ""


def _first_of(texts: list[str], most: int) -> list[str]:
    """Return the first texts, and a count of the rest."""
    left = len(texts) - most
    return [*texts[:most], f"{left} more like this"] if left > 0 else texts


_OPTIONS: Final[Mapping[str, str]] = {
    "with_stack": "Python functions and modules",
    "record_shapes": "shapes of operators",
    "profile_memory": "allocations",
}
"""What the options of torch.profiler record."""


def not_recorded(runs: Iterable[RunReport]) -> list[str]:
    """Return a sentence on what no trace contains, and the option that records it; nothing if each is in some."""
    recorded = [rank.recorded for run in runs for rank in run.ranks]
    missing = [
        f"{content} ({option})" for option, content in _OPTIONS.items() if not any(option in own for own in recorded)
    ]
    if not recorded or not missing:
        return []
    how = "`perfkit run --detail why` records these" if len(missing) > 1 else "`perfkit run --detail why` records them"
    return [f"not recorded: {', '.join(missing)}: {how}, at a cost per step (docs/detail.md)."]


def _findings(report: Report) -> Iterator[Row]:
    """Yield the findings of a report; those about several runs without a run."""
    yield from (Row(None, None, finding) for finding in report.findings)
    yield from (Row(run, None, finding) for run in report.runs for finding in run.findings)


LISTINGS: Final = {
    "findings": Listing(
        _findings, (data("run", str | None, lambda row: row.run.run if row.run else None), *data_of(Finding))
    )
}


# ---- tiles of a page -------------------------------------------------------------------------------------------------


class Tile(NamedTuple):
    """A figure."""

    label: str
    value: str
    note: str = ""


def tiles(run: RunReport) -> list[Tile]:
    """Return the main figures of a run that are known."""
    return [
        tile for tile in (_step_tile(run), _throughput_tile(run), _efficiency_tile(run), *_machine_tiles(run)) if tile
    ]


def _step_tile(run: RunReport) -> Tile | None:
    known = run.step_time
    if known is None:
        plain_ns = step_time_ns(steps_ns(run, "plain"))
        return None if plain_ns is None else Tile("step", duration(plain_ns))
    if known.is_profiled:
        return Tile("profiled step", duration(known.mean_ns))
    return Tile("step", duration(known.mean_ns), f"{duration(known.profiled_ns)} profiled")


def _throughput_tile(run: RunReport) -> Tile | None:
    known = run.throughput
    if known is None:
        return None
    tokens = "" if known.tokens_per_s is None else rate(known.tokens_per_s, "tokens")
    return Tile("throughput", rate(known.samples_per_s, "samples"), tokens)


def _efficiency_tile(run: RunReport) -> Tile | None:
    if run.throughput and run.throughput.mfu is not None:
        return Tile("MFU", format_percent(run.throughput.mfu))
    known = run.efficiency.parallel if run.efficiency else None
    return None if known is None else Tile("parallel efficiency", format_percent(known))


def _machine_tiles(run: RunReport) -> list[Tile]:
    if not run.ranks:
        return [Tile("ranks", str(run.world_size), "without traces")]
    ranks = ranks_of_world(run) if run.is_partial else str(len(run.ranks))
    hosts = len({rank.host for rank in run.ranks if rank.host})
    backends = sorted({rank.backend for rank in run.ranks if rank.backend})
    return [
        Tile("ranks", ranks, plural(hosts, "host") if hosts else ""),
        Tile("device", _listed(device_types(run)), _listed([*run.device_names, *backends])),
    ]


def _listed(names: Iterable[str]) -> str:
    return ", ".join(map(escape_unprintable, names))
