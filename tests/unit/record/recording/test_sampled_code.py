"""Names, lines and calls of sampled frames."""

import dis
import sys
from collections.abc import Callable
from types import CodeType, FrameType

import pytest

from perfkit.record.recording.sampled_code import SampledCode
from perfkit.records.samples import RecordedSamples

Frames = tuple[CodeType | int, ...]


def stack_of(frame: FrameType) -> Frames:
    return frame.f_code, frame.f_lasti


def here() -> Frames:
    return stack_of(sys._getframe(1))


def encode(frames: Frames) -> RecordedSamples:
    code = SampledCode((0, 0, 0))
    code.add([(10, 5, 1, frames), (30, 6, 1, frames)])
    return code.recorded(10)


class Images:
    def load(self) -> Frames:
        return here()

    def lazily(self) -> Frames:
        return next(here() for _ in range(1))


def make() -> Callable[[], Frames]:
    def inner() -> Frames:
        return here()

    return inner


@pytest.mark.parametrize(
    ("frames", "name"), [(Images().load(), "Images.load"), (Images().lazily(), "Images.lazily"), (make()(), "inner")]
)
def test_names_are_those_of_functions(frames: Frames, name: str) -> None:
    (function,) = encode(frames).functions
    assert function.name == name
    assert function.file == "tests/unit/record/recording/test_sampled_code.py"


def both() -> tuple[Frames, ...]:
    """Return the stacks of generators, a comprehension and a function, all within this one."""
    outer = here()
    of_generator = next((*here(), *here_of(2)) for _ in range(1))
    of_lambda = (lambda: (*here(), *here_of(2)))()
    return of_generator, of_lambda, outer


def here_of(depth: int) -> Frames:
    return stack_of(sys._getframe(depth))


def test_a_comprehension_is_its_function() -> None:
    code = SampledCode((0, 0, 0))
    code.add([(10 * (number + 1), 5, 1, frames) for number, frames in enumerate(both())])
    (function,) = code.recorded(10).functions
    assert (function.name, function.first_line) == ("both", both.__code__.co_firstlineno)


def test_the_line_and_what_it_calls() -> None:
    frames = here()
    line = sys._getframe().f_lineno - 1
    samples = encode(frames)
    assert [(place.line, place.call) for place in samples.places] == [(line, "here")]
    assert [(one.ns, one.cpu_ns, one.waits, one.stack) for one in samples.samples] == [(10, 5, 1, 0), (20, 1, 0, 0)]


def test_a_function_that_begins_has_not_run() -> None:
    code = Images.load.__code__
    begin = next(one.offset for one in dis.get_instructions(code) if one.opname == "RESUME")
    samples = encode((code, begin, *here()))
    assert [function.name for function in samples.functions] == ["test_a_function_that_begins_has_not_run"]


def test_code_without_its_source_has_no_call() -> None:
    code = compile("f(\n1)", "<made>", "exec")
    (place,) = encode((code, 1 << 20)).places
    assert (place.line, place.call) == (1, "")
