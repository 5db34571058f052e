"""Build runs of any number of ranks by repeating a real trace under other rank numbers."""

import gzip
import re
import shutil
from pathlib import Path
from typing import Final

SAMPLE: Final = Path(__file__).parents[3] / "traces" / "sample-memory" / "rank0.json.gz"
_HEADER_BYTES: Final = 100_000
_RANK = re.compile(rb'("rank": ?)\d+')
_WORLD = re.compile(rb'("world_size": ?)\d+')


def make_ranks(folder: Path, ranks: int, source: Path = SAMPLE) -> Path:
    """Write `ranks` traces into `folder` and return it.

    Each is two gzip members: a header with its own rank, and the events, which all share.
    """
    folder.mkdir(parents=True, exist_ok=True)
    data = gzip.decompress(source.read_bytes())
    cut = data.index(b"traceEvents", 0, _HEADER_BYTES)
    events = gzip.compress(data[cut:], 6, mtime=0)
    header = _WORLD.sub(rb"\g<1>%d" % ranks, data[:cut])
    for rank in range(ranks):
        own = gzip.compress(_RANK.sub(rb"\g<1>%d" % rank, header), 1, mtime=0)
        (folder / f"rank{rank}.json.gz").write_bytes(own + events)
    return folder


def make_large(path: Path, times: int, source: Path = SAMPLE) -> Path:
    """Write one trace with the events of another `times` over (numbers, names and times as they are)."""
    data = gzip.decompress(source.read_bytes())
    start = data.index(b"[", data.index(b"traceEvents", 0, _HEADER_BYTES)) + 1
    end = data.rindex(b"]")
    events = gzip.compress(data[start:end], 6, mtime=0)
    comma = gzip.compress(b",", 1, mtime=0)
    with path.open("wb") as stream:
        stream.write(gzip.compress(data[:start], 1, mtime=0))
        for number in range(times):
            stream.write((comma if number else b"") + events)
        stream.write(gzip.compress(data[end:], 1, mtime=0))
    return path


def copy_sample(folder: Path, ranks: int = 2) -> Path:
    """Copy the first ranks of the sample run, without its manifest."""
    folder.mkdir(parents=True, exist_ok=True)
    for rank in range(ranks):
        shutil.copy(SAMPLE.with_name(f"rank{rank}.json.gz"), folder)
    return folder
