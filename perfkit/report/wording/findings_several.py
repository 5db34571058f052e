"""Messages about comparisons and histories of runs, and about benchmarks."""

from collections.abc import Mapping, Sequence
from typing import Final

from perfkit.base.formatting import duration, escape_unprintable, format_percent, listed, ranges, size, whole_percent
from perfkit.records.benchmark import Series, SlowLink
from perfkit.records.facts import Words
from perfkit.report.wording.comparisons import describe_collectives, describe_input

_MOST_NAMED: Final = 5
_MOST_WRONG: Final = 3
_MOST_OPTIONS: Final = 3
Sides = Sequence[Sequence[str]]
"""Values before and after."""


def _too_few_repeats(before: int, after: int, fewest: int, assumed_noise: float | None) -> str:
    return (
        f"{before} {'run' if before == 1 else 'runs'} before and {after} after, fewer than {fewest} on each side, do "
        "not show how much runs vary: "
    ) + (
        "no change can be told from noise; repeat the runs"
        if assumed_noise is None
        else f"a change counts if it is larger than the assumed noise of {format_percent(assumed_noise)}"
    )


def _profiled_order(
    option: str, value: str, baseline: str, plain_ns: tuple[float, float], profiled_ns: tuple[float, float]
) -> str:
    faster, other = ("faster", "slower") if plain_ns[1] < plain_ns[0] else ("slower", "faster")
    return (
        f"{option}={value} is {faster} than {baseline} without the profiler ({duration(plain_ns[1])} against "
        f"{duration(plain_ns[0])} per step) and {other} with it ({duration(profiled_ns[1])} against "
        f"{duration(profiled_ns[0])} per profiled step): the profiler's cost differs, so compare the steps without it"
    )


def _mixed_configurations(side: str, options: Mapping[str, Sequence[str]]) -> str:
    differing = _listed(_values(options), "options")
    return f"the runs {side} are not repeats of one configuration: they differ in {differing}"


def _values(options: Mapping[str, Sequence[str]]) -> list[str]:
    return [f"{name} ({' / '.join(values[:3])})" for name, values in options.items()]


def _versions_differ(versions: Mapping[str, Sides]) -> str:
    named = [f"{name} ({_sides(sides)})" for name, sides in versions.items()]
    return f"versions differ: {_listed(named, 'versions')}"


def _sides(sides: Sides) -> str:
    return " / ".join(map(", ".join, sides))


def _listed(names: Sequence[str], things: str) -> str:
    more = f" and {len(names) - _MOST_NAMED} more {things}" if len(names) > _MOST_NAMED else ""
    return ", ".join(names[:_MOST_NAMED]) + more


def _operations_differ(per_sample: tuple[float, float]) -> str:
    megaflop = " / ".join(f"{operations / 1e6:,.4g}" for operations in per_sample)
    return f"steps are not comparable, nor are rates: the models differ ({megaflop} MFLOP per sample)"


def _ranks_differ(before: Sequence[str], after: Sequence[str]) -> str:
    ranks = "rank" if list(before) == ["1"] else "ranks"
    return (
        f"steps may do different work: {_either(before)} {ranks} before, {_either(after)} after, "
        "and samples per step are not known"
    )


def _either(values: Sequence[str]) -> str:
    return " or ".join(values)


def _wrong_results(wrong: Sequence[tuple[Series, int, int]]) -> str:
    named = "; ".join(
        f"{describe_collectives(series)}, {size(length)}: {elements:,} of its elements"
        for series, length, elements in wrong[:_MOST_WRONG]
    )
    more = f"; and {len(wrong) - _MOST_WRONG} more" if len(wrong) > _MOST_WRONG else ""
    return f"results are wrong ({named}{more}): the library, the network or the memory damages data"


def _slow_link(link: SlowLink) -> str:
    what = {
        "pair": f"messages between ranks {ranges(link.ranks)}",
        "rank": f"all messages of rank {ranges(link.ranks)}",
        "host": f"all messages of host {escape_unprintable(link.host or '')} (ranks {ranges(link.ranks)}) to others",
    }[link.kind]
    which = "small" if link.measure == "latency" else "large"
    return f"{what} take {link.ratio:.1f} times as long as comparable ones ({which} messages)"


def _cache_not_dropped(source: str, share: float | None) -> str:
    what = "it is unknown how much" if share is None else f"up to {whole_percent(share)}"
    return f"{what} of the files of {source} stayed in the page cache: cold passes may be too fast"


def _no_series(sizes: Sequence[int]) -> str:
    return f"no scaling series of {ranges(sizes)} ranks"


def _options_differ(sizes: Sequence[int], options: Mapping[str, Sequence[str]]) -> str:
    shown = list(options.items())[:_MOST_OPTIONS]
    named = ", ".join(f"{name} ({listed(values, _MOST_OPTIONS)})" for name, values in shown)
    more = f" and {len(options) - len(shown)} more" if len(options) > len(shown) else ""
    batch = next((name for name in options if "batch" in name), None)
    hint = f"; if {batch} holds the batch of a rank, add --batch-arg to perfkit run" if batch else ""
    return escape_unprintable(f"{_no_series(sizes)}: the runs also differ in {named}{more}{hint}")


def _batches_differ(sizes: Sequence[int], batches: Mapping[int, int]) -> str:
    each = ", ".join(f"{batch} on {ranks}" for ranks, batch in sorted(batches.items()))
    return f"{_no_series(sizes)}: samples per rank ({each}) are neither equal, nor is their sum over ranks"


SEVERAL: Final[Words] = {
    "too_few_repeats": _too_few_repeats,
    "too_few_repeats/benchmark": (
        "fewer than {fewest} repeats do not show how much times vary: use --repeats {fewest} or more"
    ),
    "profiled_step_disagrees": (
        "without the profiler a step changed by {plain:change}, but the profiled step by {profiled:change}: the "
        "profiler's cost differs, and so may every time from the traces"
    ),
    "profiled_step_disagrees/order": _profiled_order,
    "mixed_configurations": _mixed_configurations,
    "configurations_differ": lambda options: f"before and after differ in {_listed(_values(options), 'options')}",
    "configurations_differ/benchmark": lambda settings: (
        f"before and after differ in {', '.join(f'{name} ({a} / {b})' for name, (a, b) in settings.items())}"
    ),
    "configurations_differ/nothing_common": (
        "the earlier file has none of these measurements: measure with the same options{where}"
    ),
    "devices_differ": lambda devices: f"the devices differ: {_sides(devices)}",
    "versions_differ": _versions_differ,
    "versions_differ/benchmark": lambda versions: (
        f"versions differ: {', '.join(f'{name} ({old} / {new})' for name, (old, new) in versions.items())}"
    ),
    "models_differ": lambda names: (
        f"steps are not comparable, nor are rates: the models differ ({' / '.join(map(_either, names))})"
    ),
    "models_differ/operations": _operations_differ,
    "samples_per_step_differ": (
        "steps are not comparable: {before:either} samples per step before, {after:either} after"
    ),
    "ranks_differ": _ranks_differ,
    "run_excluded": "{run} is excluded: {reason}",
    "no_scaling_series/manifest": (
        "no scaling series of {sizes:ranges} ranks: {run} has no run.json, so its configuration is unknown"
    ),
    "no_scaling_series/steps": "no scaling series of {sizes:ranges} ranks: of {run}, {reason}",
    "no_scaling_series/samples": (
        "no scaling series of {sizes:ranges} ranks: the samples per step of {run} are unknown: add --samples-per-step "
        "to perfkit run"
    ),
    "no_scaling_series/options": _options_differ,
    "no_scaling_series/batch": _batches_differ,
    "oversubscribed/benchmark": (
        "the {ranks} ranks on {host} share {cores} core{cores:||s}: times include waiting for a core"
    ),
    "unsupported_collective": lambda series, backend, error: (
        f"{describe_collectives(series)} is not supported by {backend} and was left out: {error}"
    ),
    "wrong_results": _wrong_results,
    "slow_link": _slow_link,
    "different_batches": lambda series, reference: (
        f"{describe_input(series)} gives other batches than {describe_input(reference)}"
    ),
    "cache_not_dropped": _cache_not_dropped,
    "not_cached": ("only {share:percent} of the files of {source} stayed in the page cache: warm is not warm"),
    "one_stripe": (
        "the file of {source} ({each_bytes:size}) lies on one storage target of Lustre, which all ranks share: before "
        "it is written, `lfs setstripe -c -1 FOLDER` spreads the files of a folder over all"
    ),
}
