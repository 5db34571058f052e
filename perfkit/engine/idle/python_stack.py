"""The Python functions on a thread's stack at an instant: the program's own, and what it called directly.

They come from the trace's frames (`with_stack`), or from samples.
"""

import re
from dataclasses import dataclass
from functools import cached_property
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from perfkit.engine.samples import HostSamples
from perfkit.python_functions import is_own
from perfkit.trace.events import PythonFrames
from perfkit.trace.intervals import Ints, Nesting, Union, rows_of

_WAITING: Final = re.compile(
    r"<built-in (function (sleep|select|waitpid|wait4|pause|sigwait)|method (acquire|__enter__) of _thread\."
    r"|method (poll|select) of select\.|method get of _queue\.|method (recv|recv_into|accept|connect) of (_?socket))"
    r"|<method '(acquire|__enter__)' of '_thread\.|<method '(poll|select)' of 'select\.|<method 'get' of '_queue\."
    r"|<method '(recv|recv_into|accept|connect)' of '_socket\."
)
"""Built-in functions in which a thread does not run."""
_PROFILER: Final = re.compile(
    r"torch/profiler/|perfkit/(?:record|capture)/(?!training/|injected_delay|script/hooks/|monitor/)"
)
"""perfkit's hooks lie around calls of the program: what runs within them is the program's, or has its own frames."""
_COMPILER: Final = re.compile(
    r"torch/_dynamo/convert_frame\.py|torch/_inductor/compile_fx\.py\(\d+\): \w*(compile|codegen)"
    r"|triton/compiler/|torch/utils/cpp_extension\.py"
)
_ENGINE: Final = re.compile(r"torch/autograd/graph\.py\(\d+\): _engine_run_backward")
"""Where a thread waits for autograd's own thread of a device to work: training goes on there."""
_DEEPEST: Final = 1000
"""Levels of the stack that are searched at most."""


def _matching(pattern: "re.Pattern[str]") -> "cached_property[NDArray[np.bool_]]":
    def matching(frames: "FrameNames") -> NDArray[np.bool_]:
        return np.fromiter((pattern.match(name) is not None for name in frames.names), np.bool_)

    return cached_property(matching)


@dataclass(frozen=True)
class FrameNames:
    """Classes of the names of frames; each column has shape (number of names,)."""

    names: tuple[str, ...]
    waiting = _matching(_WAITING)
    engine = _matching(_ENGINE)
    profiler = _matching(_PROFILER)
    compiler = _matching(_COMPILER)

    @cached_property
    def own(self) -> NDArray[np.bool_]:
        """Functions of the program, not of a library."""
        return np.fromiter(map(is_own, self.names), np.bool_)


class Stacks(NamedTuple):
    """The Python stack at instants; columns of shape (n,)."""

    innermost: Ints
    """Name of the innermost frame; -1 without any."""
    start_ns: Ints
    """Its start."""
    own: Ints
    """Name of the innermost function of the program; -1 if none is on the stack."""
    own_start_ns: Ints
    """Its start; of samples the latest instant there is."""
    callee: Ints
    """Name of what that function has called; without one of the program, the innermost. -1 if it called nothing."""
    in_profiler: NDArray[np.bool_]
    """Whether the profiler runs within it."""
    compiler: Ints
    """Name of the outermost compiling function within it; -1 if none runs."""
    waits: NDArray[np.bool_]
    """Whether the thread does not run."""

    def with_none(self) -> "Stacks":
        """Return the stacks, and after the last an empty one: at place -1."""
        none = (-1, _NEVER, -1, _NEVER, -1, False, -1, False)
        return Stacks(*(np.append(column, value) for column, value in zip(self, none, strict=True)))


class PythonStack:
    """The frames of one thread."""

    def __init__(self, frames: PythonFrames, rows: Ints, classes: FrameNames) -> None:
        """Prepare the frames `rows` of a trace."""
        self._name = frames.name[rows].astype(np.int64)
        self._start_ns = frames.start_ns[rows]
        self._nesting = Nesting(self._start_ns, frames.end_ns[rows])
        self._classes = classes

    def at(self, instant: Ints) -> Stacks:
        """Return the stack at each instant."""
        if not len(self._name):
            return rows_of(self._walk(np.full(1, -1, np.int64)), np.zeros(len(instant), np.int64))
        frame = self._nesting.at(instant)
        distinct, place = np.unique(frame, return_inverse=True)
        return rows_of(self._walk(distinct), place)

    def _walk(self, frame: Ints) -> Stacks:
        """Climb from each frame (-1: none) to the innermost of the program, all in one go a level."""
        classes = self._classes
        innermost, start_ns = self._name_of(frame), self._start_of(frame)
        current, callee, compiler = frame.copy(), np.full_like(frame, -1), np.full_like(frame, -1)
        in_profiler = np.zeros(len(frame), np.bool_)
        climbing = np.flatnonzero(frame >= 0)
        for _ in range(_DEEPEST):
            name = self._name[current[climbing]]
            outside = ~classes.own[name]
            climbing, name = climbing[outside], name[outside]
            if not len(climbing):
                break
            callee[climbing] = name
            in_profiler[climbing] |= classes.profiler[name]
            compiles = classes.compiler[name]
            compiler[climbing[compiles]] = name[compiles]
            current[climbing] = self._nesting.parents(current[climbing])
            climbing = climbing[current[climbing] >= 0]
        own = self._name_of(current)
        rootless = (own < 0) & (innermost >= 0)
        callee[rootless] = innermost[rootless]
        in_profiler[rootless] = classes.profiler[innermost[rootless]]
        waits = (innermost >= 0) & classes.waiting[innermost] if len(classes.names) else np.zeros(len(frame), np.bool_)
        return Stacks(innermost, start_ns, own, self._start_of(current), callee, in_profiler, compiler, waits)

    def _name_of(self, frame: Ints) -> Ints:
        return np.where(frame >= 0, self._name[frame], -1) if len(self._name) else np.full_like(frame, -1)

    def _start_of(self, frame: Ints) -> Ints:
        return np.where(frame >= 0, self._start_ns[frame], _NEVER) if len(self._name) else np.full_like(frame, _NEVER)


class SampledStack:
    """The stack of the main thread, from samples."""

    def __init__(self, samples: HostSamples, classes: FrameNames) -> None:
        """Prepare the samples, whose functions have these names."""
        own = samples.own
        self._samples = samples
        self._stacks = Stacks(
            samples.innermost,
            samples.seen_ns,
            own,
            np.full(len(own), np.iinfo(np.int64).max),  # when it began is not known
            samples.callee,
            samples.within_own(classes.profiler) >= 0,
            samples.within_own(classes.compiler),
            samples.waits & (samples.innermost >= 0) & ~np.append(classes.engine, False)[samples.innermost],
        ).with_none()

    @property
    def bounds(self) -> Ints:
        """The instants at which one stack may follow another."""
        return self._samples.bounds

    def at(self, instant: Ints, spans: Union) -> Stacks:
        """Return the stack at each instant, which lies in a span: none before and after all samples.

        A sample that was taken in the span tells more of it than one before or after.
        """
        around = np.searchsorted(spans.start, instant, side="right") - 1
        sample = self._samples.within(self._samples.at(instant), spans.start[around], spans.end[around])
        return rows_of(self._stacks, sample)


_NEVER: Final = np.iinfo(np.int64).min
