"""Format numbers, names and errors for people: three significant digits, decimal units, escaped text."""

from collections.abc import Iterable, Sequence
from itertools import pairwise
from pathlib import Path
from shlex import quote
from typing import Any, Final

from perfkit.base.step_numbers import RESTART, numbered

MISSING = "–"
"""Placeholder for an unknown value."""

_NAMED_RANKS = 4
"""Most ranks that are named one by one."""
_TIME = ((1, "ns"), (10**3, "µs"), (10**6, "ms"), (10**9, "s"))
_SI = ((1, ""), (10**3, "k"), (10**6, "M"), (10**9, "G"), (10**12, "T"), (10**15, "P"))
_QUOTED_FOR_SHELL = {"'": "\\'", "\\": "\\\\"}


def _digits(value: float) -> str:
    """Return `value` with three significant digits, or as an integer if it has more before the point."""
    if value == 0:
        return "0"
    return f"{value:.0f}" if abs(value) >= 999.5 else f"{value:#.3g}".rstrip(".")


def figures(value: float) -> str:
    """Return a number with at most three significant digits, or as an integer if it has more: `0.25`, `1,070`."""
    return f"{value:.3g}" if abs(value) < 999.5 else f"{value:,.0f}"


def _scaled(value: float, scales: Sequence[tuple[int, str]]) -> tuple[str, str]:
    """Return (digits, unit), with the first unit in which the rounded `value` is below a thousand."""
    for scale, unit in scales[:-1]:
        if abs(value) / scale < 999.5:
            whole = scale == 1 and value == int(value)
            return (str(int(value)) if whole else _digits(value / scale)), unit
    scale, unit = scales[-1]
    return _digits(value / scale), unit


def duration(ns: float | None) -> str:
    """Return nanoseconds in a suitable unit: `12.3 ms`."""
    if ns is None:
        return MISSING
    return "0" if ns == 0 else " ".join(_scaled(ns, _TIME))


def difference(ns: float) -> str:
    """Return a signed duration: `+12.3 ms`."""
    return f"+{duration(ns)}" if ns > 0 else duration(ns)


def in_ms(ns: float) -> float:
    """Return nanoseconds as milliseconds for a chart, exact to a nanosecond."""
    return round(ns / 1e6, 6)


def percent_change(ratio: float) -> str:
    """Return a ratio as a relative change: `+5.0 %`."""
    return f"{100 * (ratio - 1):+.1f} %"


def size(count: float | None) -> str:
    """Return bytes in decimal units: `4.19 MB` (1 MB = 1,000,000 bytes)."""
    if count is None:
        return MISSING
    figure, prefix = _scaled(count, _SI)
    return f"{figure} {prefix}B"


def rate(per_second: float | None, unit: str) -> str:
    """Return a rate: `1.23 TFLOP/s`, `12,345 samples/s`.

    Only `B` and `FLOP` take prefixes; counts keep their digits.
    """
    if per_second is None:
        return MISSING
    if unit in {"B", "FLOP"}:
        digits, prefix = _scaled(per_second, _SI)
        return f"{digits} {prefix}{unit}/s"
    return f"{f'{per_second:,.0f}' if per_second >= 999.5 else _digits(per_second)} {unit}/s"


def format_value(value: float | None, unit: str) -> str:
    """Return a value of unit `ns`, `1/s` or `ratio`: `12.3 ms`, `1,234/s`, `0.41`."""
    if value is None:
        return MISSING
    digits = f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"
    return duration(value) if unit == "ns" else digits + ("/s" if unit == "1/s" else "")


def format_percent(fraction: float | None) -> str:
    return MISSING if fraction is None else f"{100 * fraction:.1f} %"


def whole_percent(fraction: float) -> str:
    return f"{100 * fraction:.0f} %"


def format_percents(parts: Sequence[int]) -> list[str]:
    """Return each part's percentage of their sum with one decimal; together they are exactly 100.0.

    The tenths lost by rounding down go to the largest remainders (Hamilton's method).
    """
    total = sum(parts)
    if total == 0:
        return [MISSING] * len(parts)
    tenths = [1000 * part // total for part in parts]
    by_remainder = sorted(range(len(parts)), key=lambda i: -(1000 * parts[i] % total))
    for i in by_remainder[: 1000 - sum(tenths)]:
        tenths[i] += 1
    return [f"{t // 10}.{t % 10} %" for t in tenths]


def plural(count: int, what: str) -> str:
    """Return a number of something: `1 row`, `1,000 rows`."""
    return f"{count:,} {what}{'' if count == 1 else 's'}"


def left_out(count: int, what: str) -> str:
    """Return how many of something are left out: `1 more row`, `1,000 more rows`."""
    return plural(count, f"more {what}")


def clock(seconds: float) -> str:
    """Return a duration as on a clock: `0:42`, `1:02:05`."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def listed(names: Sequence[str], most: int) -> str:
    """Return the first of some names, and whether there are more: `a, b, …`."""
    return ", ".join(names[:most]) + (", …" if len(names) > most else "")


def ranges(numbers: Iterable[int]) -> str:
    """Return whole numbers compactly: `0-3, 5`; those of steps that start again as `0-3, 2:0-3`."""
    ordered = sorted(set(numbers))
    breaks = [i for i, (a, b) in enumerate(pairwise(ordered), 1) if b != a + 1]
    runs = [ordered[a:b] for a, b in pairwise([0, *breaks, len(ordered)])] if ordered else []
    return ", ".join(numbered(r[0]) + ("" if len(r) == 1 else f"-{r[-1] % RESTART}") for r in runs)


def escape_unprintable(text: str) -> str:
    r"""Return `text` from a trace with unprintable characters escaped (`\x1b`).

    That covers terminal escapes, line breaks, invisible and bidirectional control characters, and invalid UTF-8.
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)


def escape_all(value: Any) -> Any:
    """Return plain data with the unprintable characters in its strings escaped: JSON cannot contain lone surrogates."""
    if isinstance(value, dict):
        return {key: escape_all(part) for key, part in value.items()}
    if isinstance(value, list):
        return [escape_all(part) for part in value]
    return escape_unprintable(value) if isinstance(value, str) else value


def shell_word(word: str | Path) -> str:
    r"""Return a path or name for a command that a user may type: quoted, in printable characters only.

    What cannot be shown, such as a byte that is not UTF-8, is written as `$'\377'`: bash, zsh, ksh and POSIX of 2024
    read it.
    """
    text = str(word)
    if escape_unprintable(text) == text:
        return quote(text)
    return "$'" + "".join(map(_quote_character, text)) + "'"


def _quote_character(character: str) -> str:
    if character.isprintable():
        return _QUOTED_FOR_SHELL.get(character, character)
    try:
        data = character.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:  # a lone surrogate of a file: no name on the disk has it
        data = character.encode("utf-8", "surrogatepass")
    return "".join(f"\\{byte:03o}" for byte in data)


def rank_list(ranks: Sequence[int]) -> str:
    """Return the numbers of at least one rank in words: `rank 1`, `ranks 1, 3 and 4`."""
    numbers = [str(rank) for rank in sorted(ranks)]
    if len(numbers) == 1:
        return f"rank {numbers[0]}"
    if len(numbers) > _NAMED_RANKS:
        return f"ranks {', '.join(numbers[:_NAMED_RANKS])} and {len(numbers) - _NAMED_RANKS} more"
    return f"ranks {', '.join(numbers[:-1])} and {numbers[-1]}"


_MOST_CHARACTERS: Final = 10_000
"""What is kept of a longer text, of which a line on the terminal and a file would become as long."""


def text_of(value: object) -> str:
    """Return the text of an error, encodable in UTF-8, with at most 10,000 characters of it."""
    try:
        text = str(value)
    except Exception:  # noqa: BLE001  foreign code
        return "its message cannot be shown"
    if len(text) > _MOST_CHARACTERS:
        text = f"{text[:_MOST_CHARACTERS]}… ({len(text):,} characters)"
    return text.encode("utf-8", "backslashreplace").decode()


def install_extra(extra: str) -> str:
    """Return the command that installs an extra, for an installed perfkit and for a clone."""
    return f"pip install 'perfkit[{extra}]', or in a clone '.[{extra}]'"
