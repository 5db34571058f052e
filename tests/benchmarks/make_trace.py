"""Make a large trace by repeating a real one: later in time, with its own steps, correlations and flows.

    python -m tests.benchmarks.make_trace tests/data/traces/nccl-metadata-1of2/rank0.json.gz 500 /tmp/large.json

The text of the events stays as its writer laid it out; only numbers change, at the same width or wider. What comes
before and after the events is written once. Memory does not follow the size.
"""

import argparse
import gzip
import re
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import BinaryIO, Final

_BEGIN: Final = re.compile(rb'"traceEvents"\s*:\s*\[')
_TIME: Final = re.compile(rb'"ts": *([\d.]+)')
_DURATION: Final = re.compile(rb'"dur": *([\d.]+)')
_STEP: Final = re.compile(rb"ProfilerStep#(\d+)")
_IDS: Final = re.compile(rb'"(correlation|id|External id)": *(\d+)')
_CHANGING: Final = re.compile(rb'"ts": *[\d.]+|ProfilerStep#\d+|"(?:correlation|id|External id)": *\d+')


def main() -> None:
    """Parse the command line and write the trace."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", type=Path)
    parser.add_argument("megabytes", type=int, help="size of the JSON")
    parser.add_argument("target", type=Path, help="compressed if it ends in .gz")
    arguments = parser.parse_args()
    size = repeat(arguments.source, arguments.megabytes * 1_000_000, arguments.target)
    print(f"{arguments.target}: {size:,} bytes of JSON")


def repeat(source: Path, size: int, target: Path) -> int:
    """Write the trace `source` repeatedly, up to `size` bytes of JSON; return the bytes written."""
    opener: Callable[[Path], BinaryIO] = _write_gzip if target.suffix == ".gz" else _write_plain
    data = (gzip.decompress if source.suffix == ".gz" else bytes)(source.read_bytes())
    written = 0
    with opener(target) as file:
        for part in _parts(data, size):
            file.write(part)
            written += len(part)
    return written


def _write_gzip(path: Path) -> BinaryIO:
    return gzip.GzipFile(path, "wb", compresslevel=1, mtime=0)  # type: ignore[return-value]


def _write_plain(path: Path) -> BinaryIO:
    return path.open("wb")


def _parts(data: bytes, size: int) -> Iterator[bytes]:
    begin = _BEGIN.search(data)
    if not begin:
        raise SystemExit("the source has no traceEvents")
    end = _end(data)
    head, body, tail = data[: begin.end()], data[begin.end() : end].rstrip(), data[end:]
    yield head
    written, number, pieces = len(head) + len(tail), 0, _split(body)
    while not number or written < size:
        again = (b"," if number else b"") + pieces.again(number)
        yield again
        written += len(again)
        number += 1
    yield tail


def _end(data: bytes) -> int:
    """Return where the array of events ends; no array of objects may follow it."""
    last = max(data.rfind(b"}\n  ]"), data.rfind(b"}]"), data.rfind(b"}\n]"))
    return data.index(b"]", last)


class _split:  # noqa: N801 - reads as a verb
    """The text of the events, split at the numbers that change between repetitions."""

    def __init__(self, body: bytes) -> None:
        self.fixed: list[bytes] = []
        self.changing: list[tuple[bytes, Decimal, str]] = []
        position = 0
        for match in _CHANGING.finditer(body):
            label, number = re.fullmatch(rb"(.*?)([\d.]+)", match.group(), re.DOTALL).groups()  # type: ignore[union-attr]
            self.fixed.append(body[position : match.start()] + label)
            kind = "ts" if label.startswith(b'"ts"') else "step" if label.startswith(b"Prof") else "id"
            self.changing.append((number, Decimal(number.decode()), kind))
            position = match.end()
        self.rest = body[position:]
        times = [float(n) for n in _TIME.findall(body)]
        longest = max((float(n) for n in _DURATION.findall(body)), default=0.0)
        typical = sorted(times)
        # Without the few outlying markers, which would leave a gap between the repetitions.
        self.period = Decimal(
            int(typical[int(0.999 * len(typical))] - typical[int(0.001 * len(typical))] + longest) + 1
        )
        steps = [int(n) for n in _STEP.findall(body)]
        self.steps = Decimal(max(steps, default=0) - min(steps, default=0) + 1)
        self.ids = Decimal(max((int(n) for _, n in _IDS.findall(body)), default=0) + 1)

    def again(self, number: int) -> bytes:
        """Return the next repetition of the events."""
        shift = {"ts": self.period * number, "step": self.steps * number, "id": self.ids * number}
        out: list[bytes] = []
        for fixed, (text, value, kind) in zip(self.fixed, self.changing, strict=True):
            out.append(fixed)
            out.append(str(value + shift[kind]).encode() if number else text)
        out.append(self.rest)
        return b"".join(out)


if __name__ == "__main__":
    main()
