"""The points of a sweep: every combination of options, times world sizes, times repeats."""

import math
import random
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import replace

from perfkit.errors import UsageError
from perfkit.options.mesh import lay_out, parse_mesh
from perfkit.records.sweep import ScalingKind
from perfkit.tools.sweep.point import Point, make_point

OWN_OPTIONS: Final = {
    "ranks": "use --ranks of the sweep",
    "name": "the sweep names its runs",
    "trace_dir": "use --trace-dir of the sweep",
}
"""Options of `perfkit run` that the sweep sets, and the message for users who set them too."""

_BOOLEANS: Final = {"true": "--{}", "false": "--no-{}"}
_OPTION: Final = re.compile(r"[a-z][a-z0-9_]*")


class Axis(Struct, frozen=True):
    """An option of `perfkit run` and its values."""

    option: str
    """Name in the manifest: `batch_size`."""
    values: tuple[str, ...]


class SweepSpec(Struct, frozen=True, kw_only=True):
    """The runs that a sweep consists of."""

    workload: str
    ranks: tuple[int, ...]
    scaling: tuple[ScalingKind, ...]
    axes: tuple[Axis, ...]
    repeats: int
    options: tuple[str, ...]
    """Passed unchanged to every run."""
    trace_dir: str

    def __post_init__(self) -> None:
        """Check the options.

        Raises:
            UsageError: An option is given twice, or is set by the sweep.
        """
        for axis in self.axes:
            if axis.option in OWN_OPTIONS:
                raise UsageError(f"--vary {axis.option}: {OWN_OPTIONS[axis.option]}")
        names = [axis.option for axis in self.axes]
        for name in names:
            if names.count(name) > 1:
                raise UsageError(f"--vary {name}: varied twice; give all its values at once")
        for token in self.options:
            _refuse_clash(token, names)


def parse_axis(text: str) -> Axis:
    """Parse `compile=false,true`; semicolons separate values that contain commas.

    Raises:
        UsageError: It does not have that form.
    """
    name, equals, values = text.partition("=")
    option = name.strip().removeprefix("--").replace("-", "_")
    if not equals or _OPTION.fullmatch(option) is None:
        raise UsageError(f"--vary {text}: write it as OPTION=VALUE,VALUE, for example compile=false,true")
    return Axis(option, parse_values(values, f"--vary {option}"))


def parse_values(text: str, option: str) -> tuple[str, ...]:
    """Split `a,b` (or `a;b`) into its values.

    Raises:
        UsageError: One is empty, or given twice.
    """
    values = tuple(part.strip() for part in text.split(";" if ";" in text else ","))
    for value in values:
        if not value:
            raise UsageError(f"{option} {text}: a value is empty")
        if values.count(value) > 1:
            raise UsageError(f"{option} {text}: {value} is given twice")
    return values


def parse_ranks(text: str) -> tuple[int, ...]:
    """Parse `1,2,4`.

    Raises:
        UsageError: One is not a positive integer, or is given twice.
    """
    values = parse_values(text, "--ranks")
    for value in values:
        if not value.isdecimal() or int(value) < 1:
            raise UsageError(f"--ranks {text}: '{value}' is not a number of ranks")
    numbers = sorted(int(value) for value in values)
    if len(set(numbers)) < len(numbers):
        raise UsageError(f"--ranks {text}: a number is given twice")
    return tuple(numbers)


def combinations(spec: SweepSpec) -> list[dict[str, str]]:
    """Return every combination of the axes' values, by option."""
    names = [axis.option for axis in spec.axes]
    return [dict(zip(names, values, strict=True)) for values in product(*(axis.values for axis in spec.axes))]


def arguments(spec: SweepSpec, varied: Mapping[str, str]) -> list[str]:
    """Return the arguments of `perfkit run` for a combination, at the smallest world size."""
    flags = [token for option, value in varied.items() for token in _flag(option, value)]
    return [spec.workload, *spec.options, *flags, "--trace-dir", spec.trace_dir]


def world_sizes(spec: SweepSpec, varied: Mapping[str, str]) -> tuple[int, ...]:
    """Return the world sizes of a combination, smallest first: that of its mesh, if meshes are varied."""
    return (math.prod(parse_mesh(varied["mesh"]).values()),) if "mesh" in varied else spec.ranks


def plan(spec: SweepSpec, configs: Sequence[Mapping[str, Any] | None]) -> list[Point]:
    """Return the points of a sweep, repeat by repeat.

    The smallest world size uses the given batch size. Strong scaling keeps the global batch size, weak scaling the
    batch size per rank. The smallest point belongs to both, and runs once. Of meshes, the one with the fewest replicas
    is the smallest: ranks that train on the same samples share a batch.

    Raises:
        UsageError: A world size does not divide the global batch size.
    """
    first: dict[str, Point] = {}
    given = zip(combinations(spec), configs, strict=True)
    chosen = [(varied, config) for varied, config in given if config is not None]
    smallest = min(_replicas(varied, ranks) for varied, _ in chosen for ranks in world_sizes(spec, varied))
    for varied, config in chosen:
        for scaling, ranks in product(spec.scaling, world_sizes(spec, varied)):
            batch = _batch_of_rank(scaling, config["batch_size"], smallest, _replicas(varied, ranks))
            resized = [] if batch == config["batch_size"] else ["--batch-size", str(batch)]
            shown = {option: value for option, value in varied.items() if option not in ("source", "batch_size")}
            point = make_point(
                spec.workload, ranks, {**config, "batch_size": batch}, [*arguments(spec, varied), *resized], shown
            )
            earlier = first.get(point.key, point)
            first[point.key] = replace(earlier, scaling=tuple(dict.fromkeys((*earlier.scaling, scaling))))
    return [point.as_repeat(repeat) for repeat in range(1, spec.repeats + 1) for point in first.values()]


def shuffled(points: Sequence[Point], seed: int) -> list[Point]:
    """Return the points in a random order that only depends on the seed."""
    order = list(points)
    random.Random(seed).shuffle(order)  # noqa: S311  # an order, not a secret
    return order


def _replicas(varied: Mapping[str, str], ranks: int) -> int:
    """Return the number of ranks, or of groups of ranks in a mesh, that train on different samples."""
    return lay_out(varied["mesh"], ranks).replicas if "mesh" in varied else ranks


def _batch_of_rank(scaling: ScalingKind, batch_size: int, smallest: int, ranks: int) -> int:
    global_batch = batch_size * smallest
    if scaling == "weak":
        return batch_size
    if global_batch % ranks:
        raise UsageError(
            f"--scaling strong: {ranks} ranks do not divide the global batch of {global_batch} samples "
            f"({batch_size} per rank on {smallest}): choose other --ranks, or another --batch-size after --"
        )
    return global_batch // ranks


def _flag(option: str, value: str) -> Iterator[str]:
    name = option.replace("_", "-")
    if value in _BOOLEANS:
        yield _BOOLEANS[value].format(name)
    else:
        yield f"--{name}={value}"  # one token: a value may begin with a dash


def _refuse_clash(token: str, varied: Sequence[str]) -> None:
    """Refuse an option that the sweep sets or varies itself."""
    if token.startswith("-n") and not token.startswith("--"):
        raise UsageError(f"{token} after --: {OWN_OPTIONS['ranks']}")
    option = token.partition("=")[0].removeprefix("--").removeprefix("no-").replace("-", "_")
    if not token.startswith("--"):
        return
    if option in OWN_OPTIONS:
        raise UsageError(f"{token} after --: {OWN_OPTIONS[option]}")
    if option in varied:
        raise UsageError(f"{token} after --: the sweep varies it; remove one of them")
