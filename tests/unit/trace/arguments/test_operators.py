"""What the reader keeps of operators: sequence numbers and inputs."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from perfkit.trace import arguments
from perfkit.trace.events import EventKind, OperatorArgsColumns, RankTrace, decode_list
from perfkit.trace.reader import read_trace
from tests.support.traces.trace_builder import TraceBuilder

SHAPES = {
    "Input Dims": [[4, 8], [8, 2], []],
    "Input type": ["float", "float", "Scalar"],
    "Concrete Inputs": ["", "", "2"],
}


def read(builder: TraceBuilder, folder: Path) -> RankTrace:
    """Write the trace and read it, in slices that split it."""
    return read_trace(builder.write(folder / "trace.json"), slice_bytes=700)


def mm(builder: TraceBuilder, number: int, **args: Any) -> TraceBuilder:
    """Add an operator with arguments."""
    return builder.op("aten::mm", 10 * number, 5, args={"External id": number, **args})


def test_sequence_numbers_and_threads_are_kept_where_recorded(tmp_path: Path) -> None:
    builder = TraceBuilder().step(0, 0, 1000)
    mm(builder, 1)
    mm(builder, 2, **{"Sequence number": 7, "Fwd thread id": 0})
    mm(builder, 3, **{"Sequence number": "8", "Fwd thread id": 3})
    mm(builder, 4, **{"Sequence number": 0})
    mm(builder, 5, **{"Sequence number": 2**80, "Fwd thread id": None})
    events = read(builder, tmp_path).events
    rows = events.rows(EventKind.OPERATOR)
    assert events.operator_args.sequence_of(rows).tolist() == [-1, 7, 8, 0, -1]
    assert events.operator_args.forward_thread_of(rows).tolist() == [-1, 0, 3, -1, -1]
    assert events.operator_args.sequence_of(np.array([-1])).tolist() == [-1]


def test_a_trace_without_arguments_has_empty_columns(tmp_path: Path) -> None:
    args = read(mm(TraceBuilder(), 1), tmp_path).events.operator_args
    assert not len(args.sequence_row)
    assert not len(args.inputs_row)
    assert args.inputs_of(np.array([0, 1])).tolist() == [-1, -1]


def test_equal_inputs_have_one_number_and_are_decoded_when_asked_for(tmp_path: Path) -> None:
    builder = TraceBuilder().step(0, 0, 1000)
    mm(builder, 1, **SHAPES)
    mm(builder, 2)
    mm(builder, 3, **SHAPES | {"Concrete Inputs": ["", "", "3"]})
    mm(builder, 4, **SHAPES | {"Input type": ["double", "double", "Scalar"]})
    events = read(builder, tmp_path).events
    args, rows = events.operator_args, events.rows(EventKind.OPERATOR)
    assert args.inputs_of(rows).tolist() == [0, -1, 0, 1]
    assert args.concrete_of(rows).tolist() == [0, -1, 1, 0]
    assert args.distinct_inputs[0].dims == [[4, 8], [8, 2], []]
    assert args.distinct_inputs[1].types == ["double", "double", "Scalar"]
    assert decode_list(args.distinct_concrete[1]) == ["", "", "3"]


def test_damaged_inputs_are_none(tmp_path: Path) -> None:
    builder = mm(TraceBuilder(), 1, **{"Input Dims": "a\\b", "Input type": 7})
    args = read(builder, tmp_path).events.operator_args
    assert args.distinct_inputs[0].dims is None
    assert args.distinct_inputs[0].types is None
    assert decode_list(b"[[1, 2") is None


def test_lenient_decoding_keeps_the_same(tmp_path: Path) -> None:
    """A bare backslash in a name makes the event invalid JSON."""
    given = {"Sequence number": 4, "Fwd thread id": 2, **SHAPES}
    path = mm(TraceBuilder(), 1, **given).write(tmp_path / "strict.json")
    strict = read_trace(path).events.operator_args
    path.write_bytes(path.read_bytes().replace(b"aten::mm", b"aten::\\mm"))
    lenient = read_trace(path).events.operator_args
    assert _content(lenient) == _content(strict)


def _content(args: OperatorArgsColumns) -> tuple[object, ...]:
    (inputs,) = args.distinct_inputs
    concrete = decode_list(args.distinct_concrete[0])
    return args.sequence.tolist(), args.forward_thread.tolist(), inputs.dims, inputs.types, concrete


def test_texts_are_limited_in_number_length_and_sum(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arguments, "MOST_TEXTS", 2)
    monkeypatch.setattr(arguments, "LONGEST_TEXT", 5)
    texts = arguments.Texts()
    assert texts.column([b"a", b"longer", b"b", b"a", b"c"], 5).tolist() == [0, -1, 1, 0, -1]
    monkeypatch.setattr(arguments, "MOST_TEXTS", 100)
    monkeypatch.setattr(arguments, "MOST_BYTES", 4)
    assert texts.column([b"dd", b"e", b"a"], 3).tolist() == [2, -1, 0]
