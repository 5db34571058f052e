"""Turns sampled frames into functions, lines and calls, once they have been sampled."""

import ast
import dis
import linecache
import os
import sys
from collections.abc import Iterable
from itertools import islice
from types import CodeType
from typing import Any, Final

from perfkit.records.samples import MAIN, RecordedSample, RecordedSamples, SampledFunction, SampledPlace

_RESUME: Final = dis.opmap["RESUME"]
_MOST_CALL_LINES: Final = 20
_LONGEST_CALL: Final = 80


Row = tuple[int, int, int, tuple[Any, ...]]
"""Time (`time.time_ns`), the thread's processor time (ns) and how often it has begun to wait, and code and instruction
of each frame, innermost first."""


class SampledCode:
    """Numbers the functions, places and stacks of a thread's samples."""

    def __init__(self, begin: tuple[int, int, int], worker: int = MAIN) -> None:
        self._begin_ns, self._last, self._worker = begin[0], begin, worker
        self._functions: dict[CodeType, int] = {}
        self._places: dict[tuple[CodeType, int], int] = {}
        self._function_rows: list[SampledFunction] = []
        self._place_rows: list[SampledPlace] = []
        self._stacks: dict[tuple[Any, ...], int] = {}
        self._stack_rows: list[list[int]] = []
        self._samples: list[RecordedSample] = []
        self._folders = sorted({os.path.abspath(path) + os.sep for path in sys.path}, key=len, reverse=True)

    def add(self, rows: Iterable[Row]) -> None:
        last_ns, last_cpu_ns, last_waits = self._last
        for ns, cpu_ns, waits, frames in rows:
            stack = self._stack(frames)
            self._samples.append(RecordedSample(ns - last_ns, cpu_ns - last_cpu_ns, waits - last_waits, stack))
            last_ns, last_cpu_ns, last_waits = ns, cpu_ns, waits
        self._last = last_ns, last_cpu_ns, last_waits

    def recorded(self, interval_ns: int) -> RecordedSamples:
        """Return the samples so far."""
        return RecordedSamples(
            worker=self._worker,
            begin_ns=self._begin_ns,
            interval_ns=interval_ns,
            functions=self._function_rows,
            places=self._place_rows,
            stacks=self._stack_rows,
            samples=self._samples,
        )

    def _stack(self, frames: tuple[Any, ...]) -> int:
        number = self._stacks.get(frames)
        if number is None:
            number = self._stacks[frames] = len(self._stack_rows)
            pairs = list(zip(frames[::2], frames[1::2], strict=True))
            # A function that is about to begin has done nothing: the time was its caller's.
            code, instruction = pairs[0]
            if len(pairs) > 1 and 0 <= instruction < len(code.co_code) and code.co_code[instruction] == _RESUME:
                del pairs[0]
            places = [self._place(code, instruction) for code, instruction in reversed(pairs)]
            self._stack_rows.append(places[::-1])
        return number

    def _place(self, code: CodeType, instruction: int) -> int:
        key = code, instruction
        if key not in self._places:
            self._places[key] = len(self._place_rows)
            self._place_rows.append(SampledPlace(self._function(code), *_line_and_call(code, instruction)))
        return self._places[key]

    def _function(self, code: CodeType) -> int:
        if code not in self._functions:
            # A comprehension is a part of its function, which is further out on the stack and so is numbered before.
            inner = [one for one in code.co_consts if isinstance(one, CodeType) and one.co_name.startswith("<")]
            self._functions |= dict.fromkeys([code, *inner], len(self._function_rows))
            name, file = _function_name(code.co_qualname), self._shorten(code.co_filename)
            self._function_rows.append(SampledFunction(file, name, code.co_firstlineno))
        return self._functions[code]

    def _shorten(self, file: str) -> str:
        """Return a path relative to the folder that it was imported from, as torch's profiler writes it."""
        path = file if file.startswith("<") else os.path.abspath(file)
        folder = next((folder for folder in self._folders if path.startswith(folder)), "")
        return path[len(folder) :]


def _function_name(qualified: str) -> str:
    """Return the name of a function in its class, without what it is defined in; a comprehension has its function's."""
    while (outer := qualified.rpartition(".<locals>."))[0] and outer[2].startswith("<"):
        qualified = outer[0]
    return qualified.rpartition("<locals>.")[2]


def _line_and_call(code: CodeType, instruction: int) -> tuple[int, str]:
    """Return the line of an instruction, and what it calls."""
    where = next(islice(code.co_positions(), max(0, instruction) // 2, None), (None, None, None, None))
    first, last, begin, end = where
    if first is None:
        return code.co_firstlineno, ""
    if last is None or begin is None or end is None or last - first > _MOST_CALL_LINES:
        return first, ""
    lines = [linecache.getline(code.co_filename, line).encode() for line in range(first, last + 1)]
    lines[-1] = lines[-1][:end]
    lines[0] = lines[0][begin:]
    return first, _called(b"".join(lines).decode(errors="replace"))


def _called(source: str) -> str:
    """Return what an expression calls, as in `time.sleep(1)`; empty if it is no call."""
    try:
        parsed = ast.parse(source.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return ""
    return ast.unparse(parsed.func)[:_LONGEST_CALL] if isinstance(parsed, ast.Call) else ""
