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
from perfkit.options.script import ScriptConfig
from perfkit.options.script_arguments import ScriptArgument, read_arguments
from perfkit.records.sweep import ScalingKind
from perfkit.tools.sweep.point import END_OF_OPTIONS, Point, make_point

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


class ScriptTarget(Struct, frozen=True, kw_only=True):
    """A script or module, where a workload could be."""

    tokens: tuple[str, ...]
    """What `perfkit run` is given: its path, or `-m` and its name."""
    arguments: tuple[str, ...]
    """Its own arguments, with names in braces (`{source}`) for what is varied."""
    batch_arg: str | None = None
    """The argument with its samples per rank; without one every point has the given arguments."""

    def is_filled(self, option: str) -> bool:
        """Return whether the arguments have the name of an option in braces."""
        return any(f"{{{option}}}" in token for token in self.arguments)

    def filled(self, varied: Mapping[str, str], batch: int | None = None) -> list[str]:
        """Return the arguments with the values of a combination, and another batch; the ranks are left to the run."""
        tokens = list(self.arguments)
        if batch is not None:
            argument, _ = self._batch()
            tokens = argument.with_value(tokens, str(batch))
        for option, value in varied.items():
            tokens = [token.replace(f"{{{option}}}", value) for token in tokens]
        return tokens

    @property
    def batch_size(self) -> int | None:
        """The value of the argument with the samples per rank.

        Raises:
            UsageError: There is no such argument, or its value is not a number.
        """
        return None if self.batch_arg is None else self._batch()[1]

    def _batch(self) -> tuple[ScriptArgument, int]:
        """Return the argument with the batch size, the last of that name, and its value."""
        found = [one for one in read_arguments(self.arguments) if one.name == self.batch_arg]
        text = (found[-1].value or "") if found else ""
        if not text.isdecimal() or int(text) < 1:
            raise UsageError(f"--batch-arg {self.batch_arg}: give its value after --, such as {self.batch_arg}=32")
        return found[-1], int(text)


class SweepSpec(Struct, frozen=True, kw_only=True):
    """The runs that a sweep consists of."""

    workload: str
    ranks: tuple[int, ...]
    scaling: tuple[ScalingKind, ...]
    axes: tuple[Axis, ...]
    repeats: int
    options: tuple[str, ...]
    """Of `perfkit run`, passed unchanged to every run."""
    trace_dir: str
    script: ScriptTarget | None = None
    """What runs instead of a workload."""

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
            _refuse_clash(token, names, "after --" if self.script is None else "in --run-options")
        if self.script is not None:
            _check_script(self.script, self.axes)


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


def arguments(spec: SweepSpec, varied: Mapping[str, str], batch: int | None = None) -> list[str]:
    """Return the arguments of `perfkit run` for a combination; `batch` is another batch size than the given one."""
    script = spec.script
    filled = [option for option in varied if option != "source" and script is not None and script.is_filled(option)]
    flags = [token for option, value in varied.items() if option not in filled for token in _flag(option, value)]
    own = [*spec.options, *flags, "--trace-dir", spec.trace_dir]
    if script is None:
        return [spec.workload, *own, *([] if batch is None else ["--batch-size", str(batch)])]
    own += [] if script.batch_arg is None else [f"--batch-arg={script.batch_arg}"]
    own += ["--fill-ranks"] if script.is_filled("ranks") else []
    return [*script.tokens, *own, END_OF_OPTIONS, *script.filled(varied, batch)]


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
        given_batch = config["batch_size"] if spec.script is None else spec.script.batch_size
        kinds = spec.scaling if given_batch is not None else (None,)
        for scaling, ranks in product(kinds, world_sizes(spec, varied)):
            batch = given_batch and _batch_of_rank(scaling, given_batch, smallest, _replicas(varied, ranks))
            other = None if batch == given_batch else batch
            sized = {"arguments": spec.script.filled(varied, other)} if spec.script else {"batch_size": batch}
            tokens = arguments(spec, varied, other)
            point = make_point(spec.workload, ranks, {**config, **sized}, tokens, varied, batch)
            earlier = first.get(point.key, point)
            kind = () if scaling is None else (scaling,)
            first[point.key] = replace(earlier, scaling=tuple(dict.fromkeys((*earlier.scaling, *kind))))
    return [point.as_repeat(repeat) for repeat in range(1, spec.repeats + 1) for point in first.values()]


def shuffled(points: Sequence[Point], seed: int) -> list[Point]:
    """Return the points in a random order that only depends on the seed."""
    order = list(points)
    random.Random(seed).shuffle(order)  # noqa: S311  # an order, not a secret
    return order


def _replicas(varied: Mapping[str, str], ranks: int) -> int:
    """Return the number of ranks, or of groups of ranks in a mesh, that train on different samples."""
    return lay_out(varied["mesh"], ranks).replicas if "mesh" in varied else ranks


def _batch_of_rank(scaling: ScalingKind | None, batch_size: int, smallest: int, ranks: int) -> int:
    global_batch = batch_size * smallest
    if scaling != "strong":
        return batch_size
    if global_batch % ranks:
        raise UsageError(
            f"--scaling strong: {ranks} ranks do not divide the global batch of {global_batch} samples "
            f"({batch_size} per rank on {smallest}): choose other --ranks, or another batch size after --"
        )
    return global_batch // ranks


def _flag(option: str, value: str) -> Iterator[str]:
    name = option.replace("_", "-")
    if value in _BOOLEANS:
        yield _BOOLEANS[value].format(name)
    else:
        yield f"--{name}={value}"  # one token: a value may begin with a dash


def _check_script(script: ScriptTarget, axes: Sequence[Axis]) -> None:
    """Refuse what would change nothing, and a batch argument without a value."""
    for axis in axes:
        is_filled = script.is_filled(axis.option)
        if axis.option == "source" and len(axis.values) > 1 and not is_filled:
            raise UsageError(
                "--source: name it in the script's arguments, such as --data {source}: nothing would differ"
            )
        if axis.option not in ScriptConfig.__struct_fields__ and not is_filled:
            raise UsageError(
                f"--vary {axis.option}: no option of perfkit run, and no {{{axis.option}}} in the script's arguments: "
                f"-- --{axis.option} {{{axis.option}}}"
            )
    _ = script.batch_size


def _refuse_clash(token: str, varied: Sequence[str], where: str) -> None:
    """Refuse an option that the sweep sets or varies itself."""
    if token.startswith("-n") and not token.startswith("--"):
        raise UsageError(f"{token} {where}: {OWN_OPTIONS['ranks']}")
    option = token.partition("=")[0].removeprefix("--").removeprefix("no-").replace("-", "_")
    if not token.startswith("--"):
        return
    if option in OWN_OPTIONS:
        raise UsageError(f"{token} {where}: {OWN_OPTIONS[option]}")
    if option in varied:
        raise UsageError(f"{token} {where}: the sweep varies it; remove one of them")
