"""What a sweep found: which configuration is fastest, by how much, and which command shows more."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from statistics import median

from perfkit.base.formatting import duration, escape_unprintable, plural, rate, shell_word
from perfkit.base.statistics.bootstrap import FEWEST_RUNS
from perfkit.errors import StoreError
from perfkit.options.identity import short_name
from perfkit.records.manifest import RunManifest
from perfkit.records.sweep import SweepAnswer, SweepConfiguration
from perfkit.storage.run_folder import read_manifest
from perfkit.tools.sweep.folder import SweepFolder
from perfkit.tools.sweep.plan import Axis
from perfkit.tools.sweep.point import Point


def answer(folder: SweepFolder, points: Sequence[Point], axes: Sequence[Axis]) -> SweepAnswer:
    """Return what a sweep found in the completed ones of `points`."""
    records = [folder.record_of(point) for point in points]
    found = configurations(folder, points, axes)
    return SweepAnswer(
        folder=escape_unprintable(str(folder.path)),
        points=records,
        configurations=found,
        sentences=_sentences(found),
        commands=_commands(folder.path, found),
    )


def configurations(folder: SweepFolder, points: Sequence[Point], axes: Sequence[Axis]) -> list[SweepConfiguration]:
    """Return what completed runs measured, by configuration, the fastest first; without runs that measured no rate."""
    repeats: dict[str, list[Point]] = {}
    for point in points:
        repeats.setdefault(point.key, []).append(point)
    options = _differing(points, axes)
    found = [_configuration(folder, same, options) for same in repeats.values()]
    return sorted((one for one in found if one), key=lambda one: -one.samples_per_s)


def comparable(fastest: SweepConfiguration, others: Iterable[SweepConfiguration]) -> SweepConfiguration | None:
    """Return the fastest of `others` on as many ranks; None if there is none."""
    return next((other for other in others if other.ranks == fastest.ranks), None)


def told_apart(faster: SweepConfiguration, slower: SweepConfiguration) -> bool:
    """Return whether every run of one is faster than every run of the other."""
    return faster.slowest_samples_per_s > slower.fastest_samples_per_s


def _differing(points: Sequence[Point], axes: Sequence[Axis]) -> list[str]:
    """Return the options that tell the points apart, besides the number of ranks."""
    varied = [axis.option for axis in axes if len(axis.values) > 1]
    sizes: dict[int, set[int | None]] = {}
    for point in points:
        sizes.setdefault(point.ranks, set()).add(point.batch_size)
    both_scalings = any(len(of_ranks) > 1 for of_ranks in sizes.values())
    return [*varied, *(["batch_size"] if both_scalings and "batch_size" not in varied else [])]


def _configuration(folder: SweepFolder, points: Sequence[Point], options: Sequence[str]) -> SweepConfiguration | None:
    runs = [run for point in points if (run := _completed(folder, point))]
    rates = [run.throughput.samples_per_s for run in runs if run.throughput]
    if not rates:
        return None
    first = points[0]
    values = [
        short_name(option, str(first.batch_size) if option == "batch_size" else first.varied.get(option, ""))
        for option in options
    ]
    typical = median(rates)
    step_ns = median(run.throughput.step_ns for run in runs if run.throughput)
    return SweepConfiguration(
        name=", ".join([plural(first.ranks, "rank"), *values]),
        ranks=first.ranks,
        runs=[run.run for run in runs],
        samples_per_s=typical,
        slowest_samples_per_s=min(rates),
        fastest_samples_per_s=max(rates),
        step_ns=step_ns,
        samples_per_step=round(rates[0] * runs[0].throughput.step_ns / 1e9) if runs[0].throughput else 0,
    )


def _completed(folder: SweepFolder, point: Point) -> RunManifest | None:
    """Return the manifest of a completed run that measured a rate."""
    if folder.state(point) != "completed":
        return None
    try:
        manifest = read_manifest(folder.find(point))
    except StoreError:
        return None
    return manifest if manifest.throughput else None


def _sentences(found: Sequence[SweepConfiguration]) -> list[str]:
    """Return which configuration is fastest, and what is known about the next one on as many ranks."""
    if len(found) < 2:
        return []
    fastest, *others = found
    speed = rate(fastest.samples_per_s, "samples")
    sentences = [f"Fastest: {fastest.name}, with {speed} (step {duration(fastest.step_ns)})."]
    if (other := comparable(fastest, others)) is None:
        return [*sentences, *_repeats_missing(found)]
    beside = f"{other.name}: {rate(other.samples_per_s, 'samples')}"
    sentences += _work_differs(fastest, other)
    if not told_apart(fastest, other):
        return [*sentences, f"It cannot be told from {beside}: their runs overlap.", *_repeats_missing(found)]
    less = 1 - other.samples_per_s / fastest.samples_per_s
    sentences.append(f"The next on as many ranks is {beside}, {100 * less:.3g} % less.")
    return [*sentences, *_repeats_missing(found)]


def _work_differs(fastest: SweepConfiguration, other: SweepConfiguration) -> list[str]:
    """Return that two configurations do different work in a step: more samples keep a device busier."""
    samples = [one.samples_per_step for one in (fastest, other)]
    if samples[0] == samples[1] or not all(samples):
        return []
    return [
        f"A step of it has {samples[0]} samples, one of the next {samples[1]}: they do not do the same work per step."
    ]


def _repeats_missing(found: Sequence[SweepConfiguration]) -> list[str]:
    fewest = min(len(one.runs) for one in found)
    if fewest >= FEWEST_RUNS:
        return []
    count = "one run" if fewest == 1 else f"{fewest} runs"
    return [f"Some have {count} only: --repeat {FEWEST_RUNS} shows how much runs differ."]


def _commands(folder: Path, found: Sequence[SweepConfiguration]) -> list[str]:
    commands = [f"perfkit analyze {shell_word(folder)}"]
    other = comparable(found[0], found[1:]) if found else None
    if other:
        commands.append(f"perfkit compare {shell_word(folder / other.runs[0])} {shell_word(folder / found[0].runs[0])}")
    return commands


def table(found: Sequence[SweepConfiguration], most: int) -> list[str]:
    """Return the configurations as lines of a table, at most `most` of them."""
    rows = [
        (one.name, rate(one.samples_per_s, "samples"), f"step {duration(one.step_ns)}", plural(len(one.runs), "run"))
        for one in found[:most]
    ]
    widths = [max(len(row[column]) for row in rows) for column in range(4)] if rows else []
    lines = [
        f"{name:<{widths[0]}}  {speed:>{widths[1]}}  {step:<{widths[2]}}  {runs}" for name, speed, step, runs in rows
    ]
    left = len(found) - most
    return [*lines, *([f"and {left} more"] if left > 0 else [])]
