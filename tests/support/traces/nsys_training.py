"""Recordings of Nsight Systems of a training run, and what its device did, computed by SQL alone."""

from pathlib import Path
from typing import Final

from tests.support.traces.nsys_file import NsysFile, Schema, query

MS: Final = 1_000_000
BYTES: Final = 4 << 20
COMMUNICATOR: Final = 0xABC


def first_pid(rank: int) -> int:
    return 100 + rank


def training(path: Path, schema: Schema, *, ranks: int = 1, steps: int = 6, late: int = -1, init: bool = True) -> Path:
    """Write the steps of ranks in one file: copy, compute, and an all-reduce that overlaps with its last part."""
    out = NsysFile(path, schema)
    for rank in range(ranks):
        pid = first_pid(rank)
        out.nccl_domain(pid)
        if init:
            whole = {"comm": COMMUNICATOR, "ranks": ranks, "rank": rank}
            out.nccl("ncclCommInitRankConfig", 0, MS, pid=pid, **whole)
        for step in range(steps):
            _step(out, rank, step, 3 * MS * (rank == late))
    return out.write()


def _step(out: NsysFile, rank: int, step: int, excess: int) -> None:
    pid, at, call = first_pid(rank), (5 + 16 * step) * MS + 1000 * rank, step * 10 + 1
    on = {"pid": pid, "device": rank}
    out.range(f"ProfilerStep#{step}", at, at + 15 * MS, pid=pid)
    out.range(f"aten::addmm, seq = {step}, op_id = {call}, sizes = [[8, 8]]", at + 5000, at + 900_000, pid=pid)
    out.call("cudaMemcpyAsync_v3020", at + 10_000, at + 20_000, call, pid=pid)
    out.copy("HtoD (Pinned -> Device)", at + 30_000, at + 2 * MS + 17, call, **on)
    out.call("cudaLaunchKernel_v7000", at + 40_000, at + 50_000, call + 1, pid=pid)
    out.kernel("void gemm<float>(int, float*)", at + 2 * MS + 17, at + 6 * MS + 3 + excess, call + 1, **on)
    issue = at + 60_000
    out.nccl("ncclGroupStart", issue, issue + 1000, pid=pid)
    out.nccl("ncclAllReduce", issue + 2000, issue + 3000, pid=pid, comm=COMMUNICATOR, bytes=BYTES)
    out.nccl("ncclGroupEnd", issue + 4000, issue + 9000, pid=pid)
    out.call("cudaLaunchKernelExC_v11060", issue + 5000, issue + 6000, call + 2, pid=pid)
    begin, end = at + 5 * MS + excess, at - 1000 * rank + 12 * MS
    out.kernel("ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgs)", begin, end, call + 2, stream=20, **on)


_KERNELS: Final = "SELECT start, end FROM CUPTI_ACTIVITY_KIND_KERNEL JOIN StringIds ON id = demangledName WHERE "
_ACTIVE: Final = {
    "compute": _KERNELS + "value NOT LIKE 'nccl%'",
    "communication": _KERNELS + "value LIKE 'nccl%'",
    "memcpy": "SELECT start, end FROM CUPTI_ACTIVITY_KIND_MEMCPY UNION ALL "
    "SELECT start, end FROM CUPTI_ACTIVITY_KIND_MEMSET",
}
ANY: Final = "any"


def active_ns(path: Path, begin: int, end: int) -> dict[str, int]:
    """Return how long each category was active on the device between two times of the file, and any of them."""
    spans = _ACTIVE | {ANY: " UNION ALL ".join(f"SELECT * FROM ({one})" for one in _ACTIVE.values())}
    return {name: _union(path, rows, begin, end) for name, rows in spans.items()}


def _union(path: Path, rows: str, begin: int, end: int) -> int:
    """Return the length of the union of spans: each adds what lies beyond the latest end before it."""
    statement = f"""
        WITH span AS (SELECT max(start, {begin}) AS a, min(end, {end}) AS b FROM ({rows})),
        ordered AS (SELECT a, b, coalesce(max(b) OVER (ORDER BY a, b ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING),
            a) AS before FROM span WHERE b > a)
        SELECT coalesce(sum(max(0, b - max(a, before))), 0) FROM ordered
    """
    return int(query(path, statement)[0][0])
