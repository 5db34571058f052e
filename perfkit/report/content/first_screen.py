"""The picture that a page opens with: tiles of a run's main figures, and its ledger as a bar."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from perfkit.base.formatting import duration, escape_unprintable, format_percent, plural, rate
from perfkit.records.aggregate import step_time_ns, steps_ns
from perfkit.records.run import RunReport
from perfkit.report.content.ledger import Part
from perfkit.report.content.run_facts import device_types, ranks_of_world
from perfkit.tables.charts import PATTERNS
from perfkit.tables.labels import COLOURS


class Tile(NamedTuple):
    """A figure."""

    label: str
    value: str
    note: str = ""


class LedgerRow(NamedTuple):
    """A part of the step."""

    label: str
    time: str
    """Of the mean step, with its unit."""
    share: float
    """Of the step, 0 to 1."""
    percent: str
    colour: str
    """As CSS has it."""
    pattern: str = ""
    """Its hatching, as in `perfkit.tables.charts.PATTERNS`."""
    place: str = ""
    """What takes most of it; empty if unknown."""


def tiles(run: RunReport) -> list[Tile]:
    """Return the main figures of a run that are known."""
    return [tile for tile in (_step(run), _throughput(run), _efficiency(run), *_machine(run)) if tile]


class Ledger(NamedTuple):
    """A step and its parts, which add up to it."""

    title: str
    rows: list[LedgerRow]


def ledger(run: RunReport, parts: Sequence[Part]) -> Ledger | None:
    """Return the rows of a run's ledger; None without one."""
    if run.ledger is None:
        return None
    kind = "profiled step" if run.ledger.is_profiled else "step"
    rows = [
        LedgerRow(
            part.label,
            part.time,
            part.share,
            part.percent,
            COLOURS[part.cause],
            PATTERNS.get(part.kind, ""),
            part.place,
        )
        for part in parts
    ]
    return Ledger(f"Where the mean {kind} of {duration(run.ledger.step_ns)} goes", rows)


def _step(run: RunReport) -> Tile | None:
    known = run.step_time
    if known is None:
        plain_ns = step_time_ns(steps_ns(run, "plain"))
        return None if plain_ns is None else Tile("step", duration(plain_ns))
    if known.is_profiled:
        return Tile("profiled step", duration(known.mean_ns))
    return Tile("step", duration(known.mean_ns), f"{duration(known.profiled_ns)} profiled")


def _throughput(run: RunReport) -> Tile | None:
    known = run.throughput
    if known is None:
        return None
    tokens = "" if known.tokens_per_s is None else rate(known.tokens_per_s, "tokens")
    return Tile("throughput", rate(known.samples_per_s, "samples"), tokens)


def _efficiency(run: RunReport) -> Tile | None:
    if run.throughput and run.throughput.mfu is not None:
        return Tile("MFU", format_percent(run.throughput.mfu))
    known = run.efficiency.parallel if run.efficiency else None
    return None if known is None else Tile("parallel efficiency", format_percent(known))


def _machine(run: RunReport) -> list[Tile]:
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
