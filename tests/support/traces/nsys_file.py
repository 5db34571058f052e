"""Write SQLite files as `nsys export` of several versions does, and make one of a trace of torch.profiler.

The tables are those of the SQLite Schema Reference in the user guide of Nsight Systems, with the columns that matter:
of 2022 (no tables of enumerations, texts of ranges in the table itself, no payloads), of 2023 (texts by number,
payloads as JSON) and of 2025 (green contexts, payloads as bytes with tables that describe them).
"""

import gzip
import json
import re
import sqlite3
import struct
from collections.abc import Mapping
from contextlib import closing
from decimal import Decimal
from pathlib import Path
from typing import Any, Final, Literal

Schema = Literal["2022", "2023", "2025"]
SCHEMAS: Final[tuple[Schema, ...]] = ("2022", "2023", "2025")
START_NS: Final = 1_767_189_312_000_000_000
NCCL_DOMAIN: Final = 3
_PAYLOAD: Final = {
    "NCCL communicator ID": (18, "Q"),
    "Message size [bytes]": (22, "Q"),
    "No. of ranks": (5, "I"),
    "Rank": (5, "I"),
}
_DEVICE: Final = "start INTEGER NOT NULL, end INTEGER NOT NULL, deviceId INTEGER NOT NULL, contextId INTEGER NOT NULL, "
_ON_DEVICE: Final = "streamId INTEGER NOT NULL, correlationId INTEGER, globalPid INTEGER, "
_COPIES: Final = {"HtoD": 1, "DtoH": 2, "DtoD": 8, "PtoP": 10}
_MEMORY: Final = {"Pageable": 0, "Pinned": 1, "Device": 2, "Array": 3, "Managed": 4, "Unknown": 7}
_AXES: Final = tuple(f"{what}{axis}" for what in ("grid", "block") for axis in "XYZ")


def _tables(schema: Schema) -> str:
    device = _DEVICE + ("greenContextId INTEGER, " if schema == "2025" else "") + _ON_DEVICE
    integers = ", ".join(f"{axis} INTEGER NOT NULL" for axis in _AXES)
    payload = {"2022": "", "2023": ", jsonTextId INTEGER, jsonText TEXT", "2025": ", jsonText TEXT, binaryData TEXT"}
    enums = (
        "CREATE TABLE ENUM_NSYS_EVENT_TYPE (id INTEGER NOT NULL PRIMARY KEY, name TEXT, label TEXT);"
        "INSERT INTO ENUM_NSYS_EVENT_TYPE VALUES (59, 'NvtxPushPopRange', ''), (60, 'NvtxStartEndRange', ''),"
        "(75, 'NvtxDomainCreate', '');"
        "CREATE TABLE META_DATA_EXPORT (name TEXT NOT NULL, value TEXT);"
        f"INSERT INTO META_DATA_EXPORT VALUES ('EXPORT_PRODUCT_VERSION', '{schema}.4.1.0');"
    )
    return f"""
        CREATE TABLE StringIds (id INTEGER NOT NULL PRIMARY KEY, value TEXT NOT NULL);
        CREATE TABLE ThreadNames (nameId INTEGER NOT NULL, priority INTEGER, globalTid INTEGER);
        CREATE TABLE TARGET_INFO_SESSION_START_TIME (utcEpochNs INTEGER, utcTime TEXT, localTime TEXT);
        CREATE TABLE TARGET_INFO_SYSTEM_ENV (globalVid INTEGER, devStateName TEXT NOT NULL, name TEXT NOT NULL,
            nameEnum INTEGER NOT NULL, value TEXT NOT NULL);
        CREATE TABLE TARGET_INFO_GPU (vmId INTEGER NOT NULL, id INTEGER NOT NULL, name TEXT, totalMemory INTEGER);
        CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL ({device}demangledName INTEGER NOT NULL, shortName INTEGER NOT NULL,
            {integers}, graphNodeId INTEGER);
        CREATE TABLE CUPTI_ACTIVITY_KIND_MEMCPY ({device}bytes INTEGER NOT NULL, copyKind INTEGER NOT NULL,
            srcKind INTEGER, dstKind INTEGER);
        CREATE TABLE CUPTI_ACTIVITY_KIND_MEMSET ({device}value INTEGER NOT NULL, bytes INTEGER NOT NULL, memKind INTEGER);
        CREATE TABLE CUPTI_ACTIVITY_KIND_GRAPH_TRACE ({device}graphId INTEGER NOT NULL, graphExecId INTEGER NOT NULL);
        CREATE TABLE CUPTI_ACTIVITY_KIND_SYNCHRONIZATION ({device}syncType INTEGER NOT NULL, eventId INTEGER NOT NULL);
        CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start INTEGER NOT NULL, end INTEGER NOT NULL, eventClass INTEGER NOT NULL,
            globalTid INTEGER, correlationId INTEGER, nameId INTEGER NOT NULL, returnValue INTEGER NOT NULL);
        CREATE TABLE NVTX_EVENTS (start INTEGER NOT NULL, end INTEGER, eventType INTEGER NOT NULL, rangeId INTEGER,
            text TEXT, globalTid INTEGER, endGlobalTid INTEGER, textId INTEGER, domainId INTEGER{payload[schema]});
        CREATE TABLE NVTX_PAYLOAD_SCHEMA_ENTRIES (domainId INTEGER NOT NULL, schemaId INTEGER NOT NULL,
            idx INTEGER NOT NULL, flags INTEGER, type INTEGER, name TEXT, description TEXT,
            arrayOrUnionDetail INTEGER, offset INTEGER);
        {enums if schema != "2022" else ""}
    """


def global_id(pid: int, tid: int = 0) -> int:
    """Return a serialized id, with a host in the bits above the process."""
    return 1 << 56 | pid << 24 | tid


class NsysFile:
    """Collects rows; times are nanoseconds from the start of the recording."""

    def __init__(self, path: Path, schema: Schema, *, host: str = "node1", start_ns: int = START_NS) -> None:
        path.unlink(missing_ok=True)
        self.path, self.schema = path, schema
        self._database = sqlite3.connect(path)
        self._database.executescript(_tables(schema))
        self._texts: dict[str, int] = {}
        self._insert("TARGET_INFO_SESSION_START_TIME", utcEpochNs=start_ns)
        self._insert("TARGET_INFO_SYSTEM_ENV", globalVid=0, devStateName="", name="Hostname", nameEnum=0, value=host)
        self._insert("TARGET_INFO_GPU", vmId=0, id=0, name="NVIDIA A100-SXM4-40GB", totalMemory=40 << 30)

    def _insert(self, table: str, **values: Any) -> None:
        marks = ", ".join("?" * len(values))
        names = ", ".join(f'"{name}"' for name in values)
        self._database.execute(f"INSERT INTO {table} ({names}) VALUES ({marks})", tuple(values.values()))

    def _text(self, text: str) -> int:
        if text not in self._texts:
            self._texts[text] = len(self._texts) + 1
            self._insert("StringIds", id=self._texts[text], value=text)
        return self._texts[text]

    def _device(self, table: str, start: int, end: int, pid: int, device: int, stream: int, **more: Any) -> None:
        where = {"deviceId": device, "contextId": 1, "streamId": stream, "globalPid": global_id(pid)}
        self._insert(table, start=start, end=end, **where, **more)

    def kernel(
        self, name: str, start: int, end: int, correlation: int, *, pid: int = 100, device: int = 0, stream: int = 7
    ) -> None:
        short = re.split(r"[<(]", name)[0].split("::")[-1]
        names = {"demangledName": self._text(name), "shortName": self._text(short)}
        shape = dict.fromkeys(_AXES, 1) | {"gridX": 8, "blockX": 128}
        table = "CUPTI_ACTIVITY_KIND_KERNEL"
        self._device(table, start, end, pid, device, stream, correlationId=correlation, **names, **shape)

    def copy(
        self, kind: str, start: int, end: int, correlation: int, *, pid: int = 100, device: int = 0, stream: int = 7
    ) -> None:
        """Add a copy, of a kind such as `HtoD (Pinned -> Device)`."""
        direction = next((code for name, code in _COPIES.items() if name in kind), 0)
        ends = re.search(r"\((\w+) -> (\w+)\)", kind)
        source, target = (_MEMORY[name] for name in ends.groups()) if ends else (1, 2)
        what = {"correlationId": correlation, "bytes": 4096, "copyKind": direction}
        what |= {"srcKind": source, "dstKind": target}
        self._device("CUPTI_ACTIVITY_KIND_MEMCPY", start, end, pid, device, stream, **what)

    def fill(self, start: int, end: int, correlation: int, *, pid: int = 100, device: int = 0, stream: int = 7) -> None:
        what = {"correlationId": correlation, "value": 0, "bytes": 4096, "memKind": 2}
        self._device("CUPTI_ACTIVITY_KIND_MEMSET", start, end, pid, device, stream, **what)

    def graph(self, number: int, start: int, end: int, correlation: int, *, pid: int = 100) -> None:
        what = {"correlationId": correlation, "graphId": number, "graphExecId": number}
        self._device("CUPTI_ACTIVITY_KIND_GRAPH_TRACE", start, end, pid, 0, 7, **what)

    def call(self, name: str, start: int, end: int, correlation: int, *, pid: int = 100, tid: int = 1) -> None:
        of = {"eventClass": 0, "globalTid": global_id(pid, tid), "nameId": self._text(name), "returnValue": 0}
        self._insert("CUPTI_ACTIVITY_KIND_RUNTIME", start=start, end=end, correlationId=correlation, **of)

    def range(
        self,
        text: str,
        start: int,
        end: int | None,
        *,
        pid: int = 100,
        tid: int = 1,
        kind: int = 59,
        domain: int = 0,
        payload: Mapping[str, int] | None = None,
    ) -> None:
        named = {"text": text} if self.schema == "2022" else {"textId": self._text(text)}
        more: dict[str, Any] = {}
        if payload and self.schema == "2023":
            more["jsonText"] = json.dumps(payload)
        if payload and self.schema == "2025":
            more["binaryData"] = self._packed(payload)
        thread = global_id(pid, tid)
        self._insert(
            "NVTX_EVENTS", start=start, end=end, eventType=kind, globalTid=thread, domainId=domain, **named, **more
        )

    def _packed(self, payload: Mapping[str, int]) -> bytes:
        """Return a payload as bytes, and list what it means."""
        schema = 1000 + sum(1 << place for place, name in enumerate(_PAYLOAD) if name in payload)
        data = b""
        known = self._database.execute("SELECT 1 FROM NVTX_PAYLOAD_SCHEMA_ENTRIES WHERE schemaId = ?", [schema]).fetchone()
        for place, (name, value) in enumerate(payload.items()):
            kind, code = _PAYLOAD[name]
            if not known:
                entry = {"domainId": NCCL_DOMAIN, "schemaId": schema, "idx": place, "type": kind, "name": name}
                self._insert("NVTX_PAYLOAD_SCHEMA_ENTRIES", **entry, offset=len(data) or None)
            data += struct.pack(f"<{code}", value)
        return struct.pack("<QQQQ", NCCL_DOMAIN, schema, len(data), 32 + len(data)) + data

    def nccl(self, function: str, start: int, end: int, *, pid: int = 100, tid: int = 1, **payload: int) -> None:
        """Add a call of NCCL; `comm`, `bytes`, `ranks` and `rank` are its payload."""
        fields = dict(zip(("comm", "bytes", "ranks", "rank"), _PAYLOAD, strict=True))
        values = {fields[key]: value for key, value in payload.items()}
        self.range(function, start, end, pid=pid, tid=tid, domain=NCCL_DOMAIN, payload=values)

    def nccl_domain(self, pid: int = 100) -> None:
        self.range("NCCL", 0, None, pid=pid, kind=75, domain=NCCL_DOMAIN)

    def write(self) -> Path:
        """Close the file, and return its path."""
        self._database.commit()
        self._database.close()
        return self.path

    def execute(self, *statements: str) -> None:
        for statement in statements:
            self._database.execute(statement)


def from_torch_trace(trace: Path, path: Path, schema: Schema) -> Path:
    """Write what nsys would have recorded of the run of a trace: `--trace=cuda,nvtx --pytorch=autograd-nvtx`."""
    document = json.loads(gzip.decompress(trace.read_bytes()), parse_float=Decimal)
    events = [event for event in document["traceEvents"] if event.get("ph") == "X" and "ts" in event]
    begin = min(event["ts"] for event in events)
    start_ns = document.get("baseTimeNanoseconds", 0) + int(begin * 1000)
    out = NsysFile(path, schema, host=document.get("host_name", "node1"), start_ns=start_ns)
    info = document.get("distributedInfo", {})
    if info.get("world_size", 1) > 1:
        out.nccl_domain()
        out.nccl("ncclCommInitRankConfig", 0, 1, tid=2, comm=1, ranks=info["world_size"], rank=info["rank"])
    for number, event in enumerate(events):
        start = int((event["ts"] - begin) * 1000)
        _add(out, event, start, start + int(event.get("dur", 0) * 1000), number)
    return out.write()


def _add(out: NsysFile, event: dict[str, Any], start: int, end: int, number: int) -> None:
    args, name = event.get("args", {}), event["name"]
    category = event.get("cat", "").lower()
    place = {"device": int(args.get("device", 0)), "stream": int(args.get("stream", 7))}
    correlation = int(args.get("correlation", 0))
    thread = int(event["tid"]) % (1 << 24) if str(event["tid"]).isdecimal() else 1
    if category == "kernel":
        out.kernel(name, start, end, correlation, **place)
    elif category in ("gpu_memcpy", "memcpy"):
        out.copy(name, start, end, correlation, **place)
    elif category in ("gpu_memset", "memset"):
        out.fill(start, end, correlation, **place)
    elif category in ("cuda_runtime", "runtime", "cuda_driver"):
        out.call(f"{name}_v7000", start, end, correlation, tid=thread)
    elif category in ("cpu_op", "operator", "user_annotation") and not name.startswith("nccl:"):
        sequence = args.get("Sequence number", args.get("Fwd thread id", -1))
        numbered = f", seq = {sequence}" if category != "user_annotation" and int(sequence) >= 0 else ""
        out.range(f"{name}{numbered}, op_id = {number + 1}", start, end, tid=thread)


def query(path: Path, statement: str) -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(path)) as database:
        return database.execute(statement).fetchall()
