"""Write Chrome's JSON trace format, for viewers that support no other."""

import json
from collections.abc import Iterator
from itertools import islice
from typing import BinaryIO, Final

from perfkit.tools.merge.tracks import FIRST_PROCESS, Counter, RankTracks, Threads, Track, lane_name, lanes
from perfkit.trace.intervals import Ints
from perfkit.trace.lanes import MERGED_KEY

_BLOCK_ROWS: Final = 1 << 14


class ChromeWriter:
    """Writes the tracks of ranks as events, one per line.

    Args:
        base_ns: the instant of the epoch that is zero on the timeline.
    """

    def __init__(self, stream: BinaryIO, base_ns: int) -> None:
        self._stream = stream
        self._base_ns = base_ns
        self._threads = Threads()
        self._processes: set[int] = set()
        header = {"displayTimeUnit": "ms", MERGED_KEY: True, "baseTimeNanoseconds": base_ns}
        stream.write(json.dumps(header)[:-1].encode() + b', "traceEvents": [\n')
        self._before = ""

    def write(self, part: RankTracks) -> int:
        """Write one part and return its number of slices; parts of one rank must be consecutive."""
        written = 0
        process = f'"pid": {FIRST_PROCESS + part.place}, "tid": '
        if part.place not in self._processes:
            self._processes.add(part.place)
            self._lines(_metadata("process", f"{process}0", part.name, part.place))
        labels, categories = [*map(_quoted, part.labels)], [*map(_quoted, part.categories)]
        for track in part.tracks:
            if isinstance(track, Counter):
                self._lines(self._counts(track, f"{process}0"))
                continue
            for lane, slices in lanes(track):
                where = process + str(self._thread(process, part.place, lane_name(track.name, lane)))
                self._lines(self._slices(slices, where, labels, categories))
                self._lines(self._arrows(slices, where, part))
                written += len(slices.start_ns)
        return written

    def close(self) -> None:
        self._stream.write(b"\n]}\n")

    def _lines(self, events: Iterator[str]) -> None:
        while text := ",\n".join(islice(events, _BLOCK_ROWS)):
            self._stream.write((self._before + text).encode("utf-8", "replace"))
            self._before = ",\n"

    def _thread(self, process: str, place: int, name: str) -> int:
        tid, new = self._threads.number(place, name)
        if new:
            self._lines(_metadata("thread", f"{process}{tid}", name, tid))
        return tid

    def _time(self, time_ns: int) -> str:
        """Return an instant in microseconds on the timeline, formatted exactly."""
        return _micros(time_ns - self._base_ns)

    def _counts(self, counter: Counter, where: str) -> Iterator[str]:
        start = f'{{"ph": "C", "name": {_quoted(counter.name)}, {where}, "ts": '
        for time_ns, value in zip(counter.time_ns.tolist(), counter.value.tolist(), strict=True):
            yield f'{start}{self._time(time_ns)}, "args": {{"bytes": {value}}}}}'

    def _slices(self, slices: Track, where: str, labels: list[str], categories: list[str]) -> Iterator[str]:
        columns = (slices.start_ns, slices.end_ns, slices.label, slices.category, slices.argument)
        key = _quoted(slices.argument_name)
        for start, end, label, category, argument in _rows(*columns):
            more = f', "args": {{{key}: {labels[argument]}}}' if argument >= 0 else ""
            yield (
                f'{{"ph": "X", "cat": {categories[category]}, "name": {labels[label]}, {where}, '
                f'"ts": {self._time(start)}, "dur": {_micros(end - start)}{more}}}'
            )

    def _arrows(self, slices: Track, where: str, part: RankTracks) -> Iterator[str]:
        nonempty = slices.end_ns > slices.start_ns  # an empty slice encloses no arrow
        for column, name in ((slices.launch, "launch"), (slices.collective, "collective")):
            rows = (column != 0) & nonempty
            for start, arrow in zip(slices.start_ns[rows].tolist(), column[rows].tolist(), strict=True):
                phase = ("s" if arrow > 0 else "f") if name == "launch" else _phase(part, arrow)
                common = f'"cat": "{name}", "name": "{name}", "id": {abs(arrow)}, {where}, "ts": {self._time(start)}'
                yield f'{{"ph": "{phase}", "bp": "e", {common}}}'


def _rows(*columns: Ints) -> Iterator[tuple[int, ...]]:
    """Yield the rows of columns as Python integers, converted block by block to limit memory."""
    for first in range(0, len(columns[0]), _BLOCK_ROWS):
        yield from zip(*(column[first : first + _BLOCK_ROWS].tolist() for column in columns), strict=True)


def _phase(part: RankTracks, arrow: int) -> str:
    first, last = part.arrow_ends[arrow]
    return "s" if part.place == first else "f" if part.place == last else "t"


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)  # Perfetto takes the escapes of other characters literally


def _micros(time_ns: int) -> str:
    return f"{time_ns // 1000}.{time_ns % 1000:03}"


def _metadata(what: str, where: str, name: str, order: int) -> Iterator[str]:
    yield f'{{"ph": "M", "name": "{what}_name", {where}, "args": {{"name": {_quoted(name)}}}}}'
    yield f'{{"ph": "M", "name": "{what}_sort_index", {where}, "args": {{"sort_index": {order}}}}}'
