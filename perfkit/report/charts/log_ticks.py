"""Round values on a logarithmic axis, each with the unit that suits it: 500 ms, 1 s, 10 min; 500 MB, 1 GB."""

from collections.abc import Sequence
from math import ceil, floor, log10
from typing import Final

from perfkit.tables.charts import Spec

_Unit = tuple[float, str]

_TIMES: Final[tuple[_Unit, ...]] = ((1, "ns"), (1e3, "µs"), (1e6, "ms"), (1e9, "s"), (60e9, "min"), (3600e9, "h"))
_SIZES: Final[tuple[_Unit, ...]] = tuple(
    (10.0**power, f"{name}B") for power, name in zip(range(0, 18, 3), ("", *"kMGTP"), strict=True)
)
_MARGIN: Final = 1.3
"""By which an axis goes beyond the values, as the page draws it."""
_FEWEST: Final = 3
_MOST: Final = 8


def time_ticks(times_ns: Sequence[float]) -> Spec:
    """Return the ticks of an axis with these times, in ns."""
    return _ticks(times_ns, _TIMES)


def size_ticks(sizes_bytes: Sequence[float]) -> Spec:
    """Return the ticks of an axis with these numbers of bytes."""
    return _ticks(sizes_bytes, _SIZES)


def _ticks(values: Sequence[float], units: Sequence[_Unit]) -> Spec:
    low, high = min(values) / _MARGIN, max(values) * _MARGIN
    found = [value for value in _round_values(high, units, (1, 2, 5)) if value >= low]
    if len(found) > _MOST:
        found = [value for value in _round_values(high, units, (1,)) if value >= low]
    if len(found) < _FEWEST:
        found = _even_values(low, high, units)
    return {"tickvals": found, "ticktext": [_text(value, units) for value in found]}


def _round_values(high: float, units: Sequence[_Unit], factors: Sequence[int]) -> list[float]:
    """Return all round values up to `high`, those of each unit below the next unit."""
    found: list[float] = []
    for place, (unit, _) in enumerate(units):
        end = units[place + 1][0] if place + 1 < len(units) else float("inf")
        for power in range(max(0, ceil(log10(high / unit))) + 1 if high >= unit else 0):
            found += [value for factor in factors if (value := factor * 10**power * unit) < min(end, high)]
        if end == 60 * unit:
            found = [30 * unit if value == 50 * unit else value for value in found]
    return found


def _even_values(low: float, high: float, units: Sequence[_Unit]) -> list[float]:
    """Return values at even distances, 1, 2 or 5 times a power of ten of the unit of `low`."""
    unit, _ = _unit(low, units)
    rough = (high - low) / 3 / unit
    power = 10.0 ** floor(log10(rough))
    step = power * next(factor for factor in (5, 2, 1) if factor * power <= rough)
    first, last = ceil(low / unit / step), floor(high / unit / step)
    return [round(place * step, 9) * unit for place in range(first, last + 1)]


def _unit(value: float, units: Sequence[_Unit]) -> _Unit:
    return next((one for one in reversed(units) if value >= one[0] * (1 - 1e-9)), units[0])


def _text(value: float, units: Sequence[_Unit]) -> str:
    unit, name = _unit(value, units)
    return f"{value / unit:,.6g} {name}"
