"""The changes that `perfkit whatif` can predict, and the one parser of their text."""

import math
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple

from msgspec import Struct

from perfkit.base.formatting import escape_unprintable
from perfkit.errors import UsageError

MOST_RANKS: Final = 10_000_000
"""Largest world size to predict, as for `perfkit analyze --forecast`."""
MOST_MICRO_STEPS: Final = 4096
MOST_FACTOR: Final = 1000.0
UNKNOWN_DIMENSION: Final = "unknown"
"""Selects collectives whose dimension the traces do not tell."""
MOST_BUCKET_BYTES: Final = 1 << 40
_MOST_BELOW_NS: Final = 10**9
_LONGEST_SHOWN: Final = 80
"""Characters of a change that an error repeats."""


class ScaleCompute(Struct, frozen=True):
    """`compute:NAME=0.5x`: operators or kernels take `factor` of their time."""

    pattern: str
    """A name, or a glob of names."""
    factor: float


class ScaleModule(Struct, frozen=True):
    """`module:PATH=0.7x`: what modules compute, forward and backward, takes `factor` of its time."""

    pattern: str
    """A glob of qualified names, or of the classes from some module inwards."""
    factor: float


class ScaleRank(Struct, frozen=True):
    """`rank3=healthy`, `rank3=2x`: a rank's own work takes as long as the other ranks', or `factor` of its time."""

    rank: int
    factor: float | None
    """None is healthy."""


class ScaleCollective(Struct, frozen=True):
    """`collective[dp]=0`: the transfers of collectives take `factor` of their time."""

    selector: str
    """A dimension or an operator, or a glob of either."""
    factor: float


class ScaleBandwidth(Struct, frozen=True):
    """`bandwidth[shard]=2x`: the part of transfers that grows with their size takes 1 / `factor` of its time."""

    selector: str
    factor: float


class ScaleInput(Struct, frozen=True):
    """`input=0`: loading data takes `factor` of its time."""

    factor: float


class ScaleIdle(Struct, frozen=True):
    """`idle:host_work=0`: idle time of a cause, or with a detail, takes `factor` of its time."""

    pattern: str
    factor: float


class FuseKernels(Struct, frozen=True):
    """`kernels<5us=fused`: consecutive kernels that are each shorter than `below_ns` become one."""

    below_ns: int


class RemoveSync(Struct, frozen=True):
    """`sync=removed`: the host does not wait for the device within a step."""


class RemoveProfiler(Struct, frozen=True):
    """`profiler=removed`: without the profiler's own work."""


class RemoveOverlap(Struct, frozen=True):
    """`overlap=removed`: collectives of backward begin after its last operator."""


class Accumulate(Struct, frozen=True):
    """`accumulate=4`: forward and backward run `micro_steps` times per step."""

    micro_steps: int


class Ranks(Struct, frozen=True):
    """`ranks=64`: collectives among all ranks have `count` of them."""

    count: int


class BucketCap(Struct, frozen=True):
    """`bucket_cap=50MB`: DDP's buckets are split or merged to this size."""

    bytes: int


Change = (
    ScaleCompute
    | ScaleModule
    | ScaleRank
    | ScaleCollective
    | ScaleBandwidth
    | ScaleInput
    | ScaleIdle
    | FuseKernels
    | RemoveSync
    | RemoveProfiler
    | RemoveOverlap
    | Accumulate
    | Ranks
    | BucketCap
)

_FACTOR: Final = re.compile(r"([0-9]{1,9}(?:\.[0-9]{0,9})?|\.[0-9]{1,9})x|0")
_UNITS_NS: Final = {"ns": 1, "us": 10**3, "µs": 10**3, "ms": 10**6}
_UNITS_BYTES: Final = {
    "B": 1,
    "kB": 10**3,
    "KB": 10**3,
    "MB": 10**6,
    "GB": 10**9,
    "KiB": 1 << 10,
    "MiB": 1 << 20,
    "GiB": 1 << 30,
}


def factor(value: str) -> float | None:
    """Return a factor such as `0.5x`, or 0; None if the text is none, or it is above `MOST_FACTOR`."""
    match = _FACTOR.fullmatch(value)
    if match is None:
        return None
    number = float(match[1] or 0)
    return number if number <= MOST_FACTOR else None


def _positive_factor(value: str) -> float | None:
    return factor(value) or None


def _whole(value: str, most: int) -> int | None:
    """Return a number from 1 to `most`; None if the text is no such number."""
    if re.fullmatch(r"[0-9]{1,10}", value) is None:
        return None
    return int(value) if 0 < int(value) <= most else None


def _quantity(value: str, units: dict[str, int], most: int) -> int | None:
    """Return a number with a unit in the smallest one; None if the text is none, or it is not from 1 to `most`."""
    match = re.fullmatch(r"([0-9]{1,12}(?:\.[0-9]{1,9})?) ?([A-Za-zµ]{1,3})", value)
    if match is None or match[2] not in units:
        return None
    number = float(match[1]) * units[match[2]]
    return round(number) if math.isfinite(number) and 1 <= number <= most else None


def _size(value: str) -> int | None:
    return _quantity(value, _UNITS_BYTES, MOST_BUCKET_BYTES)


def _ranks(value: str) -> int | None:
    return _whole(value, MOST_RANKS)


def _micro_steps(value: str) -> int | None:
    return _whole(value, MOST_MICRO_STEPS)


def _rank_factor(value: str) -> float | str | None:
    return value if value == "healthy" else factor(value)


def _word(expected: str) -> Callable[[str], str | None]:
    return lambda value: value if value == expected else None


class Form(NamedTuple):
    """One kind of change: how it is written, and how it is read."""

    usage: str
    subject: re.Pattern[str]
    """Of what is left of the last `=`; its group, if any, is what the change applies to."""
    expected: str
    """What may be right of it."""
    value: Callable[[str], float | int | str | None]
    """Returns None if the text is not what is expected."""
    make: Callable[[str, float | int | str], Change]
    """Of the group and the value."""


def _number(value: float | int | str) -> float:
    assert not isinstance(value, str)  # noqa: S101  an invariant of the table below
    return float(value)


_A_FACTOR: Final = "0 or a factor up to 1000x, such as 0.5x"
_SELECTED: Final = r"\[([^\[\]]+)\]"

FORMS: Final = (
    Form(
        "compute:NAME=0.5x",
        re.compile(r"compute:(.+)", re.DOTALL),
        _A_FACTOR,
        factor,
        lambda name, value: ScaleCompute(name, _number(value)),
    ),
    Form(
        "module:PATH=0.7x",
        re.compile(r"module:(.+)", re.DOTALL),
        _A_FACTOR,
        factor,
        lambda path, value: ScaleModule(path, _number(value)),
    ),
    Form(
        "rank3=healthy",
        re.compile(r"rank([0-9]{1,8})"),
        f"healthy, {_A_FACTOR}",
        _rank_factor,
        lambda rank, value: ScaleRank(int(rank), None if isinstance(value, str) else float(value)),
    ),
    Form(
        "collective[dp]=0",
        re.compile("collective" + _SELECTED),
        _A_FACTOR,
        factor,
        lambda selector, value: ScaleCollective(selector, _number(value)),
    ),
    Form(
        "bandwidth[shard]=2x",
        re.compile("bandwidth" + _SELECTED),
        "a factor above 0 up to 1000x, such as 2x",
        _positive_factor,
        lambda selector, value: ScaleBandwidth(selector, _number(value)),
    ),
    Form("input=0", re.compile("input()"), _A_FACTOR, factor, lambda _, value: ScaleInput(_number(value))),
    Form(
        "idle:host_work=0",
        re.compile(r"idle:(.+)", re.DOTALL),
        _A_FACTOR,
        factor,
        lambda name, value: ScaleIdle(name, _number(value)),
    ),
    Form("sync=removed", re.compile("sync()"), "removed", _word("removed"), lambda *_: RemoveSync()),
    Form("profiler=removed", re.compile("profiler()"), "removed", _word("removed"), lambda *_: RemoveProfiler()),
    Form("overlap=removed", re.compile("overlap()"), "removed", _word("removed"), lambda *_: RemoveOverlap()),
    Form(
        "accumulate=4",
        re.compile("accumulate()"),
        f"a number of micro-steps from 1 to {MOST_MICRO_STEPS}",
        _micro_steps,
        lambda _, value: Accumulate(int(value)),
    ),
    Form(
        "ranks=64",
        re.compile("ranks()"),
        f"a number of ranks from 1 to {MOST_RANKS}",
        _ranks,
        lambda _, value: Ranks(int(value)),
    ),
    Form(
        "bucket_cap=50MB",
        re.compile("bucket_cap()"),
        "a size from 1 B to 1 TiB, such as 50MB or 25MiB",
        _size,
        lambda _, value: BucketCap(int(value)),
    ),
)
"""Every kind of change; the first pattern that matches counts."""

_FUSED: Final = re.compile(r"kernels<(.+)")
FUSED_USAGE: Final = "kernels<5us=fused"


def healthy_ranks(ranks: Iterable[int]) -> str:
    """Return the changes that make ranks work as fast as the others."""
    return " ".join(f"rank{rank}=healthy" for rank in sorted(ranks))


def are_healthy_ranks(changes: str) -> bool:
    """Return whether these changes are such: nothing but ranks that work as fast as the others."""
    return all(change.endswith("=healthy") for change in changes.split())


def free_transfers(dimension: str | None) -> str:
    """Return the change that makes the transfers of a dimension take no time."""
    return f"collective[{dimension or UNKNOWN_DIMENSION}]=0"


def no_idle(name: str) -> str:
    """Return the change that removes the idle time of a cause, or with a detail."""
    return f"idle:{name}=0"


NO_INPUT: Final = "input=0"
NO_SYNCHRONISATION: Final = "sync=removed"


def usages() -> list[str]:
    """Return one example of every kind of change."""
    return [form.usage for form in FORMS] + [FUSED_USAGE]


def parse_change(text: str) -> Change:
    """Return the change that a text such as `compute:aten::mm=0.5x` describes.

    Raises:
        UsageError: it describes none; the message has what is allowed.
    """
    subject, _, value = text.rpartition("=")
    if fused := _FUSED.fullmatch(subject):
        below = fused[1]
        below_ns = _quantity(below, _UNITS_NS, _MOST_BELOW_NS)
        if below_ns is None:
            raise UsageError(
                f"change {_shown(text)}: '{_shown(below)}' is not a duration from 1ns to 1000ms, such as 5us"
            )
        if value != "fused":
            raise UsageError(f"change {_shown(text)}: '{_shown(value)}' is not fused")
        return FuseKernels(below_ns)
    for form in FORMS:
        if match := form.subject.fullmatch(subject):
            read = form.value(value)
            if read is None:
                raise UsageError(f"change {_shown(text)}: '{_shown(value)}' is not {form.expected}")
            return form.make(match[1], read)
    raise UsageError(f"change {_shown(text)}: there is no such change; write {', '.join(usages())}")


def parse_changes(texts: Sequence[str]) -> list[Change]:
    """Return the changes of several texts, in order.

    Raises:
        UsageError: one describes no change, or two contradict each other.
    """
    changes = [parse_change(text) for text in texts]
    for kind in (Accumulate, Ranks, BucketCap, FuseKernels):
        if sum(isinstance(change, kind) for change in changes) > 1:
            both = " and ".join(_shown(text) for text, one in zip(texts, changes, strict=True) if isinstance(one, kind))
            raise UsageError(f"changes {both} contradict each other: give one of them")
    return changes


def _shown(text: str) -> str:
    escaped = escape_unprintable(text)
    return escaped if len(escaped) <= _LONGEST_SHOWN else escaped[: _LONGEST_SHOWN - 1] + "…"
