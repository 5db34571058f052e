"""The reader against Python's JSON decoder, on real, generated and damaged traces."""

import gzip
import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from perfkit.trace.events import AFTER_END
from perfkit.trace.reader import read_trace
from tests import fuzz_reader
from tests.conftest import TRACES
from tests.support.traces import trace_oracle
from tests.support.traces.generated_traces import slow_to_generate, traces
from tests.support.traces.trace_builder import encode

LARGE_BYTES = 500_000
"""Compressed size from which decoding a trace three times takes too long for `make test`."""


def real_trace(path: Path) -> Any:
    marks = [pytest.mark.slow] if path.stat().st_size > LARGE_BYTES else []
    return pytest.param(path, marks=marks, id=f"{path.parent.name}/{path.name}")


@pytest.mark.parametrize("path", [real_trace(path) for path in sorted(TRACES.rglob("*.json.gz"))])
def test_real_traces_read_as_json_reads_them(path: Path) -> None:
    wanted = trace_oracle.expected(trace_oracle.load(gzip.decompress(path.read_bytes())))
    assert wanted
    for slice_bytes in (1_000, 100_003, 1 << 19):
        trace = read_trace(path, slice_bytes=slice_bytes)
        assert trace_oracle.agree(trace_oracle.rows(trace), wanted)
        assert trace.damage == ()
        assert set(trace.repaired) <= {AFTER_END}  # the events were compared


@settings(
    slow_to_generate,
    suppress_health_check=[*slow_to_generate.suppress_health_check, HealthCheck.function_scoped_fixture],
)
@given(document=traces(), slice_bytes=st.integers(1, 3000), text=st.text(max_size=30))
def test_generated_traces_read_as_json_reads_them(
    tmp_path: Path, document: dict[str, Any], slice_bytes: int, text: str
) -> None:
    path = tmp_path / "t.json"
    document["traceEvents"].append(
        {"name": text, "ph": "X", "cat": "cpu_op", "ts": 1, "args": {text: [{text: text}, {}]}}
    )
    path.write_bytes(data := encode(document))
    wanted = trace_oracle.expected(trace_oracle.load(data))
    assert wanted is not None
    assert trace_oracle.agree(trace_oracle.rows(read_trace(path, slice_bytes=slice_bytes)), wanted)


def test_damage_never_breaks_the_reader(tmp_path: Path) -> None:
    chance = random.Random(7)  # noqa: S311
    outcomes = {fuzz_reader.check(fuzz_reader.damaged(chance), tmp_path / "t.json") for _ in range(400)}
    assert outcomes == {"whole", "damaged", "refused"}
