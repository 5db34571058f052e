"""A small fluent builder of Chrome traces as `torch.profiler` writes them, for tests.

Times are microseconds relative to the header's base time, as ints or exact decimal strings
("12.345"), and reach the file digit for digit: nothing passes through a float. Every method returns
the builder::

    builder = TraceBuilder(rank=1, world_size=2).step(0, 0, 100)
    builder.op("aten::mm", 10, 5).launch(7, 11, 2).kernel("gemm", 20, 30, 7).write(path)
"""

import gzip
import math
from collections.abc import Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any, Final, Self

import msgspec

Micros = int | str | Decimal
"""Microseconds, exactly."""

HOST_PID: Final = 1000
"""Process id of rank 0; rank r has `HOST_PID + r`."""

MAIN_THREAD: Final = 1
BASE_NS: Final = 1_767_189_312_000_000_000
"""A base time as PyTorch >= 2.4 writes it: seconds of the epoch in which nanoseconds no longer fit
a float.
"""


def micros(value: Micros) -> int | Decimal:
    """Return `value` as a number that is encoded with all its digits."""
    return value if isinstance(value, int | Decimal) else Decimal(value)


def encode(document: Mapping[str, Any]) -> bytes:
    """Encode a trace document; `Decimal`s become JSON numbers with all their digits."""
    return msgspec.json.Encoder(decimal_format="number").encode(document)


def write(document: Mapping[str, Any], path: Path) -> Path:
    """Write a trace document to `path`, compressed if it ends in `.gz`, and return the path."""
    data = encode(document)
    path.write_bytes(gzip.compress(data, 1, mtime=0) if path.suffix == ".gz" else data)
    return path


class TraceBuilder:
    """Collects the events of one rank's trace, in the order in which they are added."""

    def __init__(
        self,
        rank: int | None = 0,
        world_size: int | None = 1,
        *,
        backend: str | None = "nccl",
        base_ns: int | None = BASE_NS,
        flows: bool = True,
        host_name: str | None = None,
    ) -> None:
        """Set the header.

        Args:
            rank: Rank in `distributedInfo`; None leaves it out (and the whole of it if nothing else
            is in it).
            world_size: World size in `distributedInfo`; None leaves it out.
            backend: Backend in `distributedInfo`; None leaves it out.
            base_ns: `baseTimeNanoseconds`; None leaves it out, as PyTorch before 2.4 does.
            flows: Whether launches and device activities also get the `ac2g` arrows that PyTorch
            draws.
            host_name: `host_name` of the header; None leaves it out.
        """
        info = {"backend": backend, "rank": rank, "world_size": world_size}
        self._header: dict[str, Any] = {
            "schemaVersion": 1,
            "deviceProperties": [],
            "distributedInfo": {k: v for k, v in info.items() if v is not None},
            "host_name": host_name,
            "displayTimeUnit": "ms",
            "baseTimeNanoseconds": base_ns,
        }
        self._pid = HOST_PID + (rank or 0)
        self._flows = flows
        self._events: list[dict[str, Any]] = []

    # ---- host ------------------------------------------------------------------------------------

    def step(self, n: int, start: Micros, dur: Micros, *, tid: int = MAIN_THREAD) -> Self:
        """Add `ProfilerStep#n`."""
        return self.annotation(f"ProfilerStep#{n}", start, dur, tid=tid)

    def op(
        self,
        name: str,
        start: Micros,
        dur: Micros | None,
        tid: int = MAIN_THREAD,
        *,
        cat: str = "cpu_op",
        args: Mapping[str, Any] | None = None,
    ) -> Self:
        """Add a host operator."""
        return self.event(cat, name, start, dur, pid=self._pid, tid=tid, args=args)

    def annotation(self, name: str, start: Micros, dur: Micros | None, *, tid: int = MAIN_THREAD) -> Self:
        """Add a `user_annotation`."""
        return self.event("user_annotation", name, start, dur, pid=self._pid, tid=tid)

    def data_loading(
        self,
        start: Micros,
        dur: Micros,
        *,
        tid: int = MAIN_THREAD,
        name: str = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__",
    ) -> Self:
        """Add the annotation of a wait for the next batch."""
        return self.annotation(name, start, dur, tid=tid)

    def gloo(self, operator: str, start: Micros, dur: Micros, *, tid: int = 50) -> Self:
        """Add gloo's annotation of a collective (`operator` like "all_reduce"), by default on a
        worker thread.
        """
        return self.annotation(f"gloo:{operator}", start, dur, tid=tid)

    def python_function(self, name: str, start: Micros, dur: Micros, *, tid: int = MAIN_THREAD) -> Self:
        """Add a Python frame, as `with_stack` writes them."""
        return self.event("python_function", name, start, dur, pid=self._pid, tid=tid)

    def record_param_comms(
        self,
        collective: str,
        start: Micros,
        dur: Micros,
        *,
        tid: int = MAIN_THREAD,
        in_elements: int = 1,
        out_elements: int = 1,
        dtype: str = "Float",
        group: str = "0",
        group_description: str = "default_pg",
        ranks: Sequence[int] = (0, 1),
        sequence: int | None = None,
    ) -> Self:
        """Add the host's record of a collective on a device, with its metadata.

        Args:
            collective: As PyTorch writes it: "allreduce", "_allgather_base", "broadcast", …
            start: Microseconds.
            dur: Microseconds.
            tid: The issuing thread.
            in_elements: `In msg nelems`.
            out_elements: `Out msg nelems`.
            dtype: c10 name, e.g. "Float", "BFloat16".
            group: `Process Group Name`.
            group_description: `Process Group Description`.
            ranks: `Process Group Ranks`.
            sequence: `Seq`, which PyTorch writes since 2026; None leaves it out.
        """
        args = collective_args(collective, in_elements, out_elements, dtype, group, group_description, ranks, sequence)
        return self.op("record_param_comms", start, dur, tid, args=args)

    def launch(
        self,
        correlation: int,
        start: Micros,
        dur: Micros,
        tid: int = MAIN_THREAD,
        *,
        name: str = "cudaLaunchKernel",
        cat: str = "cuda_runtime",
    ) -> Self:
        """Add the runtime call that launched the device activities with the same `correlation`."""
        if self._flows:
            self._flow("s", correlation, self._pid, tid, start)
        args = {"External id": correlation, "cbid": 211, "correlation": correlation}
        return self.event(cat, name, start, dur, pid=self._pid, tid=tid, args=args)

    # ---- device ----------------------------------------------------------------------------------

    def kernel(
        self,
        name: str,
        start: Micros,
        dur: Micros,
        correlation: int | None = None,
        stream: int = 7,
        *,
        args: Mapping[str, Any] | None = None,
    ) -> Self:
        """Add a kernel; without a `correlation` it has no launch."""
        return self.device("kernel", name, start, dur, correlation, stream, args=args)

    def memcpy(
        self,
        start: Micros,
        dur: Micros,
        correlation: int | None = None,
        stream: int = 7,
        *,
        kind: str = "Memcpy HtoD (Pageable -> Device)",
    ) -> Self:
        """Add a copy."""
        return self.device("gpu_memcpy", kind, start, dur, correlation, stream)

    def memset(self, start: Micros, dur: Micros, correlation: int | None = None, stream: int = 7) -> Self:
        """Add a memset."""
        return self.device("gpu_memset", "Memset (Device)", start, dur, correlation, stream)

    def device(
        self,
        cat: str,
        name: str,
        start: Micros,
        dur: Micros,
        correlation: int | None,
        stream: int,
        *,
        args: Mapping[str, Any] | None = None,
    ) -> Self:
        """Add an activity of any category on a stream of device 0."""
        more = {"device": 0, "stream": stream, **(args or {})}
        if correlation is not None:
            more |= {"External id": correlation, "correlation": correlation}
            if self._flows:
                self._flow("f", correlation, 0, stream, start)
        return self.event(cat, name, start, dur, pid=0, tid=stream, args=more)

    # ---- allocator -------------------------------------------------------------------------------

    def memory(
        self,
        at: Micros,
        allocated: Any,
        change: Any,
        *,
        kind: Any = 0,
        device: Any = -1,
        reserved: Any = 0,
        address: Any = 94345224894016,
        tid: int = MAIN_THREAD,
    ) -> Self:
        """Add the allocator's record of a change by `change` bytes at `address`, to `allocated`."""
        args = {"Total Reserved": reserved, "Total Allocated": allocated, "Bytes": change}
        args |= {"Device Id": device, "Device Type": kind, "Addr": address}
        mark = {
            "ph": "i",
            "cat": "cpu_instant_event",
            "s": "t",
            "name": "[memory]",
            "pid": self._pid,
            "tid": tid,
        }
        return self.raw(mark | {"ts": micros(at), "args": args})

    # ---- anything --------------------------------------------------------------------------------

    def event(
        self,
        cat: str,
        name: str,
        start: Micros,
        dur: Micros | None,
        *,
        pid: int | str,
        tid: int | str,
        args: Mapping[str, Any] | None = None,
    ) -> Self:
        """Add a complete event; `dur` None omits the duration."""
        event: dict[str, Any] = {"ph": "X", "cat": cat, "name": name, "pid": pid, "tid": tid}
        event |= {"ts": micros(start)} | ({} if dur is None else {"dur": micros(dur)})
        return self.raw(event | ({"args": dict(args)} if args else {}))

    def raw(self, event: dict[str, Any]) -> Self:
        """Add an event as it is."""
        self._events.append(event)
        return self

    def header(self, **fields: object) -> Self:
        """Set or (with None) remove fields of the header."""
        self._header |= fields
        return self

    def _flow(self, phase: str, correlation: int, pid: int, tid: int, start: Micros) -> None:
        flow = {"ph": phase, "id": correlation, "pid": pid, "tid": tid, "ts": micros(start)}
        flow |= {"cat": "ac2g", "name": "ac2g"} | ({"bp": "e"} if phase == "f" else {})
        self.raw(flow)

    # ---- results ---------------------------------------------------------------------------------

    def to_dict(self) -> dict[str, Any]:
        """Return the document: header, events, and the bookkeeping events that PyTorch adds around
        them.
        """
        header = {k: v for k, v in self._header.items() if v is not None and v != {}}
        return {**header, "traceEvents": [*self._process_names(), *self._events, *self._closing()]}

    def to_bytes(self) -> bytes:
        """Return the document as JSON."""
        return encode(self.to_dict())

    def write(self, path: Path) -> Path:
        """Write the document to `path` (`.json` or `.json.gz`) and return the path."""
        return write(self.to_dict(), path)

    def _process_names(self) -> list[dict[str, Any]]:
        pids = dict.fromkeys(e["pid"] for e in self._events if "pid" in e)
        labels = {pid: "CPU" if pid == self._pid else f"GPU {pid}" for pid in pids}
        common = {"ph": "M", "ts": 0, "tid": 0}
        return [
            event
            for pid, label in labels.items()
            for event in (
                {"name": "process_name", "pid": pid, "args": {"name": "python3"}, **common},
                {"name": "process_labels", "pid": pid, "args": {"labels": label}, **common},
            )
        ]

    def _closing(self) -> list[dict[str, Any]]:
        times = [e["ts"] for e in self._events if isinstance(e.get("ts"), int | Decimal)]
        numbers = (int, Decimal)
        lasting = [e for e in self._events if isinstance(e.get("ts"), numbers) and isinstance(e.get("dur"), numbers)]
        first, last = min(times, default=0), max([*times, *(e["ts"] + e["dur"] for e in lasting)], default=0)
        span = {"ph": "X", "cat": "Trace", "pid": "Spans", "tid": "PyTorch Profiler"}
        mark = {"ph": "i", "s": "g"}
        return [
            span | {"name": "PyTorch Profiler (0)", "ts": first, "dur": last - first},
            mark
            | {"name": "Iteration Start: PyTorch Profiler", "ts": first}
            | {"pid": "Traces", "tid": "Trace PyTorch Profiler"},
            mark | {"name": "Record Window End", "ts": math.ceil(last), "pid": "", "tid": ""},  # times are rounded
        ]


def collective_args(
    collective: str,
    in_elements: int,
    out_elements: int,
    dtype: str,
    group: str,
    group_description: str,
    ranks: Sequence[int],
    sequence: int | None,
) -> dict[str, Any]:
    """Return the `args` of a `record_param_comms` event; NCCL kernels carry the same."""
    numbers = {"In msg nelems": in_elements, "Out msg nelems": out_elements}
    return {
        "Collective name": collective,
        **numbers,
        "Group size": len(ranks),
        "dtype": dtype,
        "In split size": "[]",
        "Out split size": "[]",
        "Process Group Name": group,
        "Process Group Description": group_description,
        "Process Group Ranks": str(list(ranks)),
        **({} if sequence is None else {"Seq": sequence}),
    }
