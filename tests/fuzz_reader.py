"""Damage traces at random, and check that the reader neither fails nor contradicts itself.

    python -m tests.fuzz_reader --inputs 100000 --seed 1

For each damaged input: nothing but TraceError is raised; the result does not depend on the size of the slices; and
where Python's own JSON decoder can still read the whole text, the results must agree.
"""

import argparse
import gzip
import random
import resource
import tempfile
import time
from pathlib import Path
from typing import Any

import zstandard

from perfkit.errors import TraceError
from perfkit.trace.events import RankTrace
from perfkit.trace.reader import read_trace
from tests.support.traces import trace_oracle as oracle

SEED_TEXTS = (
    b"""{"baseTimeNanoseconds": 1700000000000000000, "distributedInfo": {"rank": 1, "world_size": 2},
"traceEvents": [
  {
    "ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 7, "tid": 7, "ts": 12345.678, "dur": 5.001,
    "args": {"External id": 1, "Input Dims": [[2, 3], []], "Input type": ["float", ""]}
  },
  {
    "ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 7, "tid": 7,
    "ts": 12346.000, "dur": 2.500,
    "args": {"correlation": 11}
  },
  {
    "ph": "s", "id": 11, "pid": 7, "tid": 7, "ts": 12346.000, "cat": "ac2g", "name": "ac2g"
  },
  {
    "ph": "X", "cat": "kernel", "name": "ncclDevKernel_AllReduce(\\"x\\\\\\", {[)", "pid": 0, "tid": 7, "ts": 12350,
    "dur": 9, "args": {"correlation": 11, "Collective name": "allreduce", "In msg nelems": 8, "dtype": "Float",
    "note": "}, {"}
  },
  {
    "ph": "X", "cat": "python_function", "name": "train.py(7): main", "pid": 7, "tid": 7, "ts": 1.5, "dur": 1e3,
    "args": {"Python id": 3, "list": [{"a": 1}, {"b": [{}, {}]}]}
  },
  {
    "ph": "i", "cat": "cpu_instant_event", "s": "t", "name": "[memory]", "pid": 7, "tid": 7, "ts": 12346.001,
    "args": {"Total Reserved": 64, "Total Allocated": 32, "Bytes": 8, "Addr": 5, "Device Id": 0, "Device Type": 1}
  },
  {
    "ph": "i", "name": "[memory]", "pid": 7, "tid": 7, "ts": 12345.001,
    "args": {"Total Allocated": 24, "Bytes": -8, "Device Id": 0, "Device Type": 1, "note": "\x02\xfe"}
  },
  {
    "ph": "M", "name": "process_name", "pid": 7, "tid": 0, "ts": 0, "args": {"name": "python"}
  },
  {
    "ph": "X", "cat": "user_annotation", "name": "ProfilerStep#3", "pid": 7, "tid": 7, "ts": 12000.001, "dur": 900
  }
  ], "traceName": "x.json"
}
""",
    b'[{"name":"aten::add","ph":"X","cat":"Operator","pid":"1","tid":"a b","ts":"17.25","dur":3,"args":{}},'
    b'{"cat":"Kernel","ph":"X","name":12,"pid":0,"tid":0,"ts":20,"dur":-1,"args":{"correlation":"5"}},'
    b'{"ph":"X","cat":"Memcpy","name":"HtoD \xff\x01","pid":0,"tid":1.5,"ts":21,"dur":NaN}]',
    b'[{"args":{"list":[{"args":{}},{"a":"}, {"},{"ts":1}],"correlation":4},"cat":"kernel","dur":2,"name":"a","ph":"X",'
    b'"pid":0,"tid":7,"ts":5},\n{"args":{},"cat":"cpu_op","dur":1,"name":"C:\\\\Users","ph":"X","pid":7,"tid":7,"ts":6},\n'
    b'{"args":{"x":[{"ph":"X"},{"b":[{}]}]},"cat":"kernel","dur":2,"name":"b","ph":"X","pid":0,"tid":7,"ts":8},\n'
    b'{"dur":3,"args":{"y":"\\u0012"},"cat":"cpu_op","name":"\\\\c\\n","ph":"X","pid":7,"tid":7,"ts":9}]',
)
TOKENS = (
    b'"',
    b"\\",
    b"\\U",
    b'\\"',
    b"{",
    b"}",
    b"[",
    b"]",
    b",",
    b":",
    b"},{",
    b"null",
    b"NaN",
    b"-",
    b"1e9",
    b"0",
    b"\xff",
    b"\x00",
    b"[" * 100 + b"]" * 100,
    b"[" * 2000 + b"]" * 2000,
)
SLICES = (17, 200, 1 << 19)


def damaged(chance: random.Random) -> bytes:
    """Return one input: a trace with random changes, perhaps compressed, and perhaps changed again."""
    data = bytearray(chance.choice(SEED_TEXTS))
    for _ in range(chance.choice((0, 1, 1, 2, 5, 15))):
        change(chance, data)
    packed = chance.random()
    if packed < 0.75:
        return bytes(data)
    out = bytearray(gzip.compress(bytes(data), 1) if packed < 0.88 else zstandard.compress(bytes(data), 1))
    for _ in range(chance.choice((0, 1, 2))):
        change(chance, out)
    return bytes(out)


def change(chance: random.Random, data: bytearray) -> None:
    """Flip, remove, insert, repeat or cut something."""
    at = chance.randrange(len(data) + 1)
    upto = min(len(data), at + chance.choice((1, 1, 3, 40, 400)))
    kind = chance.randrange(7)
    if kind == 0 and at < len(data):
        data[at] ^= 1 << chance.randrange(8)
    elif kind == 1:
        del data[at:upto]
    elif kind == 2:
        data[at:at] = chance.choice(TOKENS)
    elif kind == 3:
        other = chance.randrange(len(data) + 1)
        data[other:other] = data[at:upto]
    elif kind == 4:
        data[at:upto] = chance.choice(TOKENS)
    elif kind == 5 and chance.random() < 0.3:
        del data[at:]
    elif kind == 6:  # something between two tokens, so that more of the inputs stay JSON
        place = data.find(b", ", at)
        data[place + 1 : place + 1] = b'"ts": %d, ' % chance.randrange(10**6) if place >= 0 else b""


def outcome(path: Path, slice_bytes: int) -> RankTrace | str:
    try:
        return read_trace(path, slice_bytes=slice_bytes)
    except TraceError as error:
        return str(error)


def check(data: bytes, path: Path) -> str:
    """Raise AssertionError if the reader mishandles an input; return the outcome."""
    path.write_bytes(data)
    first, *others = (outcome(path, size) for size in SLICES)
    for other in others:
        assert _alike(first, other), (data, first, other)
    if isinstance(first, str):
        assert "\n" not in first, first
    return _against_json(data, first)


def _alike(one: RankTrace | str, other: RankTrace | str) -> bool:
    if isinstance(one, str) or isinstance(other, str):
        return one == other
    same = (one.header, one.counts, one.unknown, one.repaired, one.damage)
    return (
        same == (other.header, other.counts, other.unknown, other.repaired, other.damage)
        and oracle.same(one.events, other.events)
        and _levels(one) == _levels(other)
    )


def _levels(trace: RankTrace) -> list[Any]:
    return [
        (key, found.before_bytes, *(column.tolist() for column in (found.time_ns, found.allocated_bytes)))
        for key, found in trace.memory.items()
    ]


def _against_json(data: bytes, found: RankTrace | str) -> str:
    try:
        document: Any = oracle.load(data)
    except (ValueError, RecursionError):
        return "refused" if isinstance(found, str) else "damaged"
    wanted = oracle.expected(document)
    if wanted is None or isinstance(found, str):
        assert isinstance(found, str), (data, wanted)
        foreign = "not a trace" in found and not wanted
        assert wanted is None or "baseTimeNanoseconds" in found or foreign, (data, found)
        return "refused"
    assert oracle.agree(oracle.rows(found), wanted), (data, oracle.rows(found), wanted)
    return "whole"


def main() -> None:
    """Parse the command line, run, and print the outcomes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--inputs", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    chance = random.Random(arguments.seed)  # noqa: S311 - nothing is secret here
    counts, slowest = dict.fromkeys(("whole", "damaged", "refused"), 0), 0.0
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(arguments.inputs):
            started = time.perf_counter()
            counts[check(damaged(chance), Path(folder, "t.json"))] += 1
            slowest = max(slowest, time.perf_counter() - started)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    print(f"{arguments.inputs:,} inputs: {counts}; slowest {slowest:.2f} s; peak memory {peak} MB")


if __name__ == "__main__":
    main()
