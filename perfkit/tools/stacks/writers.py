"""Write stacks as speedscope JSON, collapsed stacks, or pprof."""

import gzip
from collections.abc import Callable
from typing import Any, BinaryIO, Final, NamedTuple

import msgspec

from perfkit.base.formatting import escape_unprintable
from perfkit.base.protobuf_columns import message, number, text, varint
from perfkit.errors import UsageError
from perfkit.python_functions import PYTHON_FUNCTION
from perfkit.tools.stacks.collect import Stacks

_SPEEDSCOPE_SCHEMA: Final = "https://www.speedscope.app/file-format-schema.json"


class _Frame(NamedTuple):
    """A name, as viewers show it; file and line of Python functions, else empty and 0."""

    name: str
    file: str = ""
    line: int = 0


def _frame(name: str) -> _Frame:
    shown = escape_unprintable(name)
    match = PYTHON_FUNCTION.fullmatch(shown)
    return _Frame(match["function"], match["file"], int(match["line"])) if match else _Frame(shown)


def write_speedscope(stacks: Stacks, name: str, stream: BinaryIO) -> None:
    """Write speedscope's format (https://github.com/jlfwong/speedscope/wiki/Importing-from-custom-sources).

    One profile per rank; its samples are the stacks, in which order is no order of time.
    """
    frames: dict[_Frame, int] = {}
    profiles = []
    for rank in stacks.ranks:
        samples = [[frames.setdefault(_frame(one), len(frames)) for one in stack] for stack in rank.stacks]
        profiles.append(
            {
                "type": "sampled",
                "name": rank.name,
                "unit": "bytes" if _is_bytes(stacks) else "nanoseconds",
                "startValue": 0,
                "endValue": sum(rank.stacks.values()),
                "samples": samples,
                "weights": list(rank.stacks.values()),
            }
        )
    document = {
        "$schema": _SPEEDSCOPE_SCHEMA,
        "shared": {"frames": [_speedscope_frame(frame) for frame in frames]},
        "profiles": profiles,
        "name": f"{name} ({stacks.weight} by {stacks.by})",
        "activeProfileIndex": 0,
        "exporter": "perfkit",
    }
    stream.write(msgspec.json.encode(document))


def _speedscope_frame(frame: _Frame) -> dict[str, Any]:
    return {"name": frame.name} | ({"file": frame.file, "line": frame.line} if frame.line else {})


def _is_bytes(stacks: Stacks) -> bool:
    return stacks.weight == "communication-bytes"


def write_collapsed(stacks: Stacks, name: str, stream: BinaryIO) -> None:  # noqa: ARG001  the format has no name
    """Write one line per stack: names joined by semicolons, a space, and the weight (nanoseconds or bytes).

    The rank is the outermost name if there are several (https://github.com/brendangregg/FlameGraph).
    """
    for rank in stacks.ranks:
        outer = (rank.name,) if len(stacks.ranks) > 1 else ()
        for stack, weight in rank.stacks.items():
            names = (escape_unprintable(one).replace(";", ":") for one in (*outer, *stack))
            stream.write(f"{';'.join(names)} {weight}\n".encode("utf-8", "replace"))


def write_pprof(stacks: Stacks, name: str, stream: BinaryIO) -> None:
    """Write a gzip-compressed pprof profile (https://github.com/google/pprof/blob/main/proto/profile.proto)."""
    profile = _PprofProfile()
    unit = "bytes" if _is_bytes(stacks) else "nanoseconds"
    value_type = number(1, profile.text(stacks.weight.replace("-", "_"))) + number(2, profile.text(unit))
    parts = [message(1, value_type)]
    for rank in stacks.ranks:
        outer = (rank.name,) if len(stacks.ranks) > 1 else ()
        for stack, weight in rank.stacks.items():
            # The innermost comes first.
            locations = b"".join(varint(profile.location(one)) for one in reversed((*outer, *stack)))
            parts.append(message(2, message(1, locations), message(2, varint(weight))))
    parts += [number(13, profile.text(escape_unprintable(name))), *profile.tables()]
    with gzip.GzipFile(fileobj=stream, mode="wb", mtime=0) as compressed:
        compressed.write(b"".join(parts))


class _PprofProfile:
    """The tables of a profile; their indices begin with 1, except for texts, of which the first is empty."""

    def __init__(self) -> None:
        self._texts: dict[str, int] = {"": 0}
        self._frames: dict[_Frame, int] = {}

    def text(self, value: str) -> int:
        return self._texts.setdefault(value, len(self._texts))

    def location(self, name: str) -> int:
        return self._frames.setdefault(_frame(name), len(self._frames) + 1)

    def tables(self) -> list[bytes]:
        parts = []
        for frame, index in self._frames.items():
            line = number(1, index) + number(2, frame.line)
            parts.append(message(4, number(1, index), message(4, line)))
            name, file = self.text(frame.name), self.text(frame.file)
            function = (number(1, index), number(2, name), number(3, name), number(4, file), number(5, frame.line))
            parts.append(message(5, *function))
        return parts + [text(6, value) for value in self._texts]


Writer = Callable[[Stacks, str, BinaryIO], None]
WRITERS: Final[dict[str, Writer]] = {
    ".speedscope.json": write_speedscope,
    ".collapsed": write_collapsed,
    ".txt": write_collapsed,
    ".pb.gz": write_pprof,
}
"""By the suffix of the file."""


def writer_for(file: str) -> Writer:
    """Return the writer for a file's suffix.

    Raises:
        UsageError: no format has it.
    """
    for suffix, writer in WRITERS.items():
        if file.lower().endswith(suffix):
            return writer
    raise UsageError(f"-o {file}: unknown file name suffix: use {', '.join(WRITERS)}")
