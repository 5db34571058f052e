"""Draws a chart as SVG for a slide: large type, on white, from the specification that the page and notebooks draw.

It knows bars, lines and points on linear, logarithmic and named axes. Everything that is not a number is escaped.
"""

import html
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple, TextIO

from perfkit.base.formatting import figures
from perfkit.errors import UsageError
from perfkit.records.report import Report
from perfkit.report.charts.run import chart
from perfkit.tables.charts import Chart, Spec

WIDTH: Final = 1280
HEIGHT: Final = 720
"""Of a slide, 16:9."""
_TITLE: Final = 34
_TYPE: Final = 24
"""Sizes of type in pixels: a thirtieth of the height is legible from the last row (24 pt on a slide of 10 x 5.6 in)."""
_GLYPH: Final = 0.56
"""Mean width of a character in its size."""
_PAD: Final = 36
_WIDEST: Final = 130
"""Of a bar."""
_INK, _FAINT, _GRID = "#1b1f24", "#59636e", "#d1d9e0"
_DASHES: Final = {"dash": "12 8", "dot": "3 6", "dashdot": "12 6 3 6", "longdash": "20 8", "longdashdot": "20 6 3 6"}
_HATCHES: Final = {
    "/": "M-2 14L14-2M-2 2L2-2M10 14L14 10",
    "\\": "M-2-2L14 14M10-2L14 2M-2 10L2 14",
    "x": "M0 0L12 12M12 0L0 12",
    "-": "M0 6H12",
    ".": "M6 4A2 2 0 1 1 6 8A2 2 0 1 1 6 4",
}
_PLAIN: Final = {"bar", "scatter"}


def write_svg(report: Report, stream: TextIO, name: str) -> None:
    """Write the chart `name` of a report.

    Raises:
        UsageError: the report has no such chart, or it is one that only the page draws.
    """
    stream.write(svg(chart(report, name), name))


def svg(drawn: Chart, name: str) -> str:
    """Return a chart as SVG.

    Raises:
        UsageError: it has areas or a map of colours.
    """
    data, layout = drawn.spec["data"], drawn.spec["layout"]
    if any(one["type"] not in _PLAIN or "stackgroup" in one or "fill" in one for one in data) or "shapes" in layout:
        raise UsageError(f"figure {name!r} has no SVG here: press SVG beside it on the page (.html)")
    title = list(_wrapped(drawn.answer or drawn.title, _TITLE))
    heads = [_text(_PAD, 24 + (nth + 1) * _TITLE * 1.25, one, _TITLE, weight=700) for nth, one in enumerate(title)]
    top = 44 + len(title) * _TITLE * 1.25
    keys, height = _legend(data, layout)
    frame = _Frame(_left(layout), top + _TYPE * 1.6, WIDTH - _PAD, HEIGHT - 24 - height - _below(layout, data))
    body = "".join([*heads, *_axes(data, layout, frame), *_marks(data, layout, frame), *keys])
    shapes = {one.get("marker", {}).get("pattern", {}).get("shape") for one in data} & set(_HATCHES)
    hatches = "".join(_hatch(shape) for shape in sorted(shapes))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" '
        f'font-family="Helvetica, Arial, sans-serif" role="img"><title>{html.escape(" ".join(title))}</title>'
        f'<defs>{hatches}</defs><rect width="100%" height="100%" fill="#fff"/>{body}</svg>\n'
    )


class _Frame(NamedTuple):
    """Where the marks are, in pixels."""

    left: float
    top: float
    right: float
    bottom: float


# ---- text ------------------------------------------------------------------------------------------------------------


def _lines(text: str) -> list[str]:
    """Return the lines of a text of a chart, whose breaks and entities are HTML."""
    return [html.unescape(line) for line in str(text).split("<br>")]


def _text(
    x: float, y: float, text: str, size: int = _TYPE, *, at: str = "start", fill: str = _INK, weight: int = 400
) -> str:
    look = f'font-size="{size}" text-anchor="{at}" fill="{fill}" font-weight="{weight}"'
    return f'<text x="{x:.1f}" y="{y:.1f}" {look}>{html.escape(text)}</text>'


def _wide(text: str, size: int = _TYPE) -> float:
    return len(text) * size * _GLYPH


def _fitting(texts: Iterable[str], room: float) -> int:
    """Return the size in which texts are at most `room` wide; room 0 is unlimited."""
    most = max((len(line) for text in texts for line in _lines(text)), default=0)
    return min(_TYPE, int(room / (most * _GLYPH))) if room and most else _TYPE


def _wrapped(text: str, size: int) -> Iterator[str]:
    """Yield lines as wide as the picture, at most two."""
    words, line, count = text.split(), "", 1
    for word in words:
        if line and _wide(f"{line} {word}", size) > WIDTH - 2 * _PAD:
            if count == 2:
                yield f"{line} …"
                return
            yield line
            line, count = word, count + 1
        else:
            line = f"{line} {word}".strip()
    yield line


# ---- axes ------------------------------------------------------------------------------------------------------------


class _Scale(NamedTuple):
    """From values to pixels; `band` is the width of a category, 0 on an axis of numbers."""

    at: Callable[[Any], float]
    ticks: list[tuple[float, str]]
    band: float = 0.0


def _left(layout: Spec) -> float:
    names = layout["yaxis"].get("categoryarray", ())
    return _PAD + max([70.0, *(18 + _wide(line) for name in names for line in _lines(name))])


def _below(layout: Spec, data: Sequence[Spec]) -> float:
    """Return the room for the labels of the horizontal axis, and for its title."""
    named = [] if "categoryarray" in layout["yaxis"] else [x for one in data for x in one["x"] if isinstance(x, str)]
    lines = max([1, *(len(_lines(name)) for name in named)])
    return (lines + bool(layout["xaxis"]["title"]["text"])) * _TYPE * 1.25


def _scales(data: Sequence[Spec], layout: Spec, frame: _Frame) -> tuple[_Scale, _Scale]:
    rows = layout["yaxis"].get("categoryarray")
    if rows is not None:
        ends = [base + x for one in data for base, x in zip(one["base"], one["x"], strict=True)]
        return _numbers(layout["xaxis"], [0.0, *ends], frame.left, frame.right), _names(rows, frame.top, frame.bottom)
    names = list(dict.fromkeys(x for one in data for x in one["x"]))
    across = (frame.left, frame.right)
    x = _names(names, *across) if isinstance(names[0], str) else _numbers(layout["xaxis"], names, *across)
    return x, _numbers(layout["yaxis"], list(_heights(data)), frame.bottom, frame.top)


def _heights(data: Sequence[Spec]) -> Iterator[float]:
    """Yield what the vertical axis has room for: stacks from zero, and points with their intervals."""
    sums: dict[Any, float] = {}
    for one in data:
        for place, (x, y) in enumerate(zip(one["x"], one["y"], strict=True)):
            if y is None:
                continue
            if one["type"] == "bar":
                sums[x] = sums.get(x, 0.0) + y
                yield from (0.0, sums[x])
            else:
                error = one.get("error_y")
                yield from (y - error["arrayminus"][place], y + error["array"][place]) if error else (y,)


def _names(names: Sequence[str], start: float, end: float) -> _Scale:
    band, places = (end - start) / max(1, len(names)), {name: place for place, name in enumerate(names)}

    def at(name: str) -> float:
        return start + (places[name] + 0.5) * band

    return _Scale(at, [(at(name), name) for name in names], band)


def _numbers(of: Spec, values: Sequence[float], start: float, end: float) -> _Scale:
    is_log = of.get("type") == "log"
    known = [value for value in values if value > 0] if is_log else values
    if is_log:
        around = min(known, default=1.0) / 1.3, max(known, default=1.0) * 1.3
    else:
        around = min(0, *known), max(known) * 1.05
    low, high = of.get("range") or around

    def scaled(value: float) -> float:
        return math.log10(max(value, low)) if is_log else value

    span = scaled(high) - scaled(low) or 1.0

    def at(value: float) -> float:
        return start + (scaled(value) - scaled(low)) / span * (end - start)

    ticks = of.get("tickvals") or (_log_ticks(low, high) if is_log else _round_ticks(low, high))
    labels = of.get("ticktext") or [f"{tick:,g}" if tick < 1e6 else figures(tick) for tick in ticks]
    return _Scale(at, [(at(tick), str(label)) for tick, label in zip(ticks, labels, strict=True)])


def _round_ticks(low: float, high: float) -> list[float]:
    """Return round values, some five."""
    rough = (high - low) / 5
    power = 10.0 ** math.floor(math.log10(rough)) if rough > 0 else 1.0
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= rough)
    return [round(step * place, 12) for place in range(math.ceil(low / step), math.floor(high / step) + 1)]


def _log_ticks(low: float, high: float) -> list[float]:
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    finer = [factor * 10.0**power for power in powers for factor in ((1, 2, 5) if len(powers) < 4 else (1,))]
    return [tick for tick in finer if low <= tick <= high]


def _axes(data: Sequence[Spec], layout: Spec, frame: _Frame) -> Iterator[str]:
    x, y = _scales(data, layout, frame)
    lines = [f"M{at:.1f} {frame.top:.1f}V{frame.bottom:.1f}" for at, _ in x.ticks if not x.band]
    lines += [f"M{frame.left:.1f} {at:.1f}H{frame.right:.1f}" for at, _ in y.ticks if not y.band]
    yield f'<path d="{"".join(lines)}" stroke="{_GRID}" stroke-width="1.5" fill="none"/>'
    size = _fitting((label for _, label in x.ticks), x.band)
    for at, label in x.ticks:
        for nth, line in enumerate(_lines(label)):
            yield _text(at, frame.bottom + (nth + 1.1) * size * 1.2, line, size, at="middle")
    for at, label in y.ticks:
        yield _text(frame.left - 10, at + _TYPE / 3, " ".join(_lines(label)), at="end")
    across = layout["xaxis"]["title"]["text"]
    yield _text(frame.left, frame.bottom + 2.4 * _TYPE, across, fill=_FAINT) if across else ""
    yield _text(_PAD, frame.top - _TYPE * 0.7, layout["yaxis"]["title"]["text"], fill=_FAINT)


# ---- marks -----------------------------------------------------------------------------------------------------------


def _marks(data: Sequence[Spec], layout: Spec, frame: _Frame) -> Iterator[str]:
    x, y = _scales(data, layout, frame)
    sums: dict[Any, float] = {}
    for one in data:
        if one.get("orientation") == "h":
            yield from _spans(one, x, y)
        elif one["type"] == "bar":
            yield from _stacked(one, x, y, sums)
        else:
            yield from _points(one, x, y)


def _filled(x: float, y: float, width: float, height: float, marker: Spec) -> str:
    area = f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" fill="'
    shape = marker.get("pattern", {}).get("shape")
    return f'{area}{marker["color"]}"/>' + (f'{area}url(#h{ord(shape)})"/>' if shape else "")


def _hatch(shape: str) -> str:
    look = 'stroke="#fff" stroke-opacity=".6" stroke-width="2.6" fill="none"'
    path = f'<path d="{_HATCHES[shape]}" {look}/>'
    return f'<pattern id="h{ord(shape)}" width="12" height="12" patternUnits="userSpaceOnUse">{path}</pattern>'


def _stacked(one: Spec, x: _Scale, y: _Scale, sums: dict[Any, float]) -> Iterator[str]:
    width = min(_WIDEST, 0.78 * x.band)
    for name, value in zip(one["x"], one["y"], strict=True):
        if value:
            start = sums.get(name, 0.0)
            sums[name] = start + value
            top = y.at(start + value)
            yield _filled(x.at(name) - width / 2, top, width, y.at(start) - top, one["marker"])


def _spans(one: Spec, x: _Scale, y: _Scale) -> Iterator[str]:
    for place, (base, value, name) in enumerate(zip(one["base"], one["x"], one["y"], strict=True)):
        left, right, height = x.at(base), x.at(base + value), min(48, 0.7 * y.band)
        yield _filled(left, y.at(name) - height / 2, max(right - left, 1), height, one["marker"])
        if one.get("textposition") == "outside":
            yield _text(right + 10, y.at(name) + _TYPE / 3, one["text"][place], weight=700)


def _points(one: Spec, x: _Scale, y: _Scale) -> Iterator[str]:
    known = [place for place, value in enumerate(one["y"]) if value is not None]
    at = [(x.at(one["x"][place]), y.at(one["y"][place])) for place in known]
    marker = one.get("marker", {})
    colour = one.get("line", {}).get("color") or marker.get("color", _INK)
    if "lines" in one["mode"] and at:
        path = "L".join(f"{px:.1f} {py:.1f}" for px, py in at)
        dash = _DASHES.get(one["line"].get("dash", ""), "none")
        yield f'<path d="M{path}" stroke="{colour}" stroke-width="4" stroke-dasharray="{dash}" fill="none"/>'
    if error := one.get("error_y"):
        for place, (px, _) in zip(known, at, strict=True):
            low, high = (y.at(one["y"][place] + end) for end in (-error["arrayminus"][place], error["array"][place]))
            whisker = f"M{px:.1f} {low:.1f}V{high:.1f}M{px - 8:.1f} {low:.1f}h16M{px - 8:.1f} {high:.1f}h16"
            yield f'<path d="{whisker}" stroke="{colour}" stroke-width="2.5" fill="none"/>'
    if "markers" in one["mode"]:
        yield from (_symbol(marker, px, py, colour) for px, py in at)
    if "text" in one["mode"]:
        texts = [one["text"][place] for place in known]
        size = _fitting(texts, x.band)
        for (px, py), text in zip(at, texts, strict=True):
            yield _text(px, py - 14, text, size, at="middle", weight=700)


def _symbol(marker: Spec, x: float, y: float, colour: str) -> str:
    if marker.get("symbol") == "line-ew":
        path = f"M{x - 44:.1f} {y:.1f}h88"
        return f'<path d="{path}" stroke="#fff" stroke-width="11"/><path d="{path}" stroke="{_INK}" stroke-width="6"/>'
    if not marker.get("size"):
        return ""
    is_open = str(marker.get("symbol", "")).endswith("-open")
    fill = "#fff" if is_open else colour
    return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="9" fill="{fill}" stroke="{colour}" stroke-width="3"/>'


# ---- legend ----------------------------------------------------------------------------------------------------------


def _legend(data: Sequence[Spec], layout: Spec) -> tuple[list[str], float]:
    """Return the keys at the bottom, and their height."""
    named = [one for one in data if one.get("showlegend", True)]
    if layout.get("showlegend") is False or len(named) < 2:
        return [], 0.0
    rows: list[list[tuple[float, Spec, str]]] = [[]]
    x = float(_PAD)
    for one in named:
        label = " ".join(_lines(one["name"]))
        wide = 48 + _wide(label) + 26
        if x + wide > WIDTH - _PAD and rows[-1]:
            rows.append([])
            x = float(_PAD)
        rows[-1].append((x, one, label))
        x += wide
    height = len(rows) * _TYPE * 1.4
    first = HEIGHT - 20 - height + _TYPE
    drawn = [_key(x, first + nth * _TYPE * 1.4, one, label) for nth, row in enumerate(rows) for x, one, label in row]
    return drawn, height + 14


def _key(x: float, y: float, one: Spec, label: str) -> str:
    text = _text(x + 44, y, label)
    if one["type"] == "bar":
        return _filled(x, y - 19, 34, 22, one["marker"]) + text
    stroke = f'<path d="M{x:.1f} {y - 8:.1f}h34" stroke="'
    if one.get("marker", {}).get("symbol") == "line-ew":
        return f'{stroke}{_INK}" stroke-width="6"/>{text}'
    look = one.get("line") or one["marker"]
    dash = _DASHES.get(look.get("dash", ""), "none")
    return f'{stroke}{look["color"]}" stroke-width="4" stroke-dasharray="{dash}"/>{text}'
