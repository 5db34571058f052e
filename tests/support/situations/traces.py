"""Situations as traces whose truth is known: read, analysed and replayed."""

from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from msgspec.structs import replace

import perfkit
from perfkit.records.hang import NoticedHang
from perfkit.records.manifest import Failure, RankRecord, World
from perfkit.records.report import Report
from perfkit.storage.hang_log import add_hang
from perfkit.storage.run_folder import write_manifest
from tests.support.clusters.cluster import Cluster, Faults, simulate
from tests.support.clusters.device_faults import MEMORY_BOUND, MIX, OF_BATCH
from tests.support.clusters.programs import Model
from tests.support.clusters.rank import KernelFaults
from tests.support.manifests import make_manifest
from tests.support.monitor.made_runs import eventful_times, own_times, write_run
from tests.support.traces.device_pipeline import DevicePipeline
from tests.support.traces.device_training import Beside, Device, Part, train
from tests.support.traces.light import lighten
from tests.support.traces.pipeline_builder import Order, gpipe, one_forward_one_backward
from tests.support.traces.samples import Stack, header, recorded
from tests.support.traces.trace_builder import TraceBuilder

Make = Callable[[Path], Report]
Late = Callable[[int, int], bool]
"""Whether a rank is late in a step."""
MS: Final = 1_000_000
AUGMENT: Final = "train.py(32): colour_jitter"


def analyzed(_: Path, name: str = "run", **options: Any) -> Report:
    return perfkit.analyze(name, cache=False, executor="serial", **options)


# ---- devices ---------------------------------------------------------------------------------------------------------


def compute(one: Device, _step: int) -> None:
    one.kernels("ampere_sgemm_128x64_nn", 1000, 20)


def finish(one: Device, _step: int) -> None:
    one.kernels("multi_tensor_apply", 100)
    one.item()


def device(*parts: Part | int | Beside, ranks: int = 1, steps: int = 10, **options: Any) -> Make:
    """Steps of 20 ms of kernels and what is given."""

    def make(folder: Path) -> Report:
        train(folder / "run", ranks, steps, [*parts, compute, *([300] if ranks > 1 else []), finish], **options)
        return analyzed(folder)

    return make


def each(do: Callable[[Device], object], is_late: Late = lambda *_: True) -> Part:
    """Return a part of some ranks in some steps."""

    def part(one: Device, step: int) -> None:
        if is_late(one.rank, step):
            do(one)

    return part


def works(us: int, name: str = AUGMENT) -> Callable[[Device], object]:
    return lambda one: one.work(us, name)


def loads(us: int) -> Callable[[Device], object]:
    return lambda one: one.load(us)


def kernels(us: int, count: int = 1, operator: str = "aten::mm") -> Callable[[Device], object]:
    return lambda one: one.kernels("gemm", us, count, operator)


def copies(us: int, kind: str) -> Callable[[Device], object]:
    return lambda one: one.copy(us, kind)


def waits(us: int, name: str) -> Callable[[Device], object]:
    """Return a call of the host for which the device waits."""

    def do(one: Device) -> None:
        one.item()
        one.trace.launch(one._launch_number(), one.now, us, name=name)
        one.now += us

    return do


def annotated(us: int, name: str) -> Callable[[Device], object]:
    def do(one: Device) -> None:
        one.trace.annotation(name, one.now, us)
        one.now += us

    return do


def launching(count: int, within: str = "") -> Callable[[Device], object]:
    """Return kernels that are shorter than their launches, perhaps in an annotation."""

    def do(one: Device) -> None:
        begin = one.now
        one.kernels("elementwise_kernel", 2, count, "aten::add")
        if within:
            one.trace.annotation(within, begin, one.now - begin)

    return do


def of(*ranks: int) -> Late:
    return lambda rank, _step: rank in ranks


ALLOCATES: Final = waits(9_000, "cudaMalloc")
STALL: Final = works(9_000)

DEVICES: Final[Mapping[str, Make]] = {
    "compute-bound, 1 GPU": device(),
    "compute-bound, 8 GPUs": device(ranks=8),
    "communication beside compute, 2 GPUs": device(Beside(9_000), ranks=2),
    "communication, 2 GPUs": device(9_000, ranks=2),
    "communication, 8 GPUs": device(9_000, ranks=8),
    "communication, 2 GPUs, and data loading": device(each(loads(8_000)), 9_000, ranks=2),
    "data loading, 1 GPU": device(each(loads(40_000))),
    "data loading, 8 GPUs": device(each(loads(40_000)), ranks=8),
    "data loading in every fourth step": device(each(loads(20_000), lambda _, step: step % 4 == 3), ranks=2, steps=12),
    "copies to the device, pageable": device(each(copies(9_000, "Memcpy HtoD (Pageable -> Device)"))),
    "copies to the device, pinned": device(each(copies(9_000, "Memcpy HtoD (Pinned -> Device)"))),
    "copies to the host, 2 GPUs": device(each(copies(9_000, "Memcpy DtoH (Device -> Pageable)")), ranks=2),
    "copies within the device": device(each(copies(9_000, "Memcpy DtoD (Device -> Device)"))),
    "copies between devices": device(each(copies(9_000, "Memcpy PtoP (Device -> Device)"))),
    "memory is filled": device(each(copies(9_000, "Memset (Device)"))),
    "host work with a line, 1 GPU": device(each(STALL)),
    "host work with a line, 8 GPUs": device(each(STALL), ranks=8),
    "host work in an operator": device(
        each(lambda one: one.trace.op("aten::nonzero", one.now, 9_000)), each(works(9_000, "aten::nonzero"))
    ),
    "host work in an annotation": device(each(annotated(9_000, "sample negatives"))),
    "garbage collection": device(each(works(9_000, "<built-in function collect>"))),
    "printing": device(each(works(9_000, "<built-in function print>"))),
    "saving": device(each(works(9_000, "torch/serialization.py(943): save"))),
    "a lock": device(each(works(9_000, "threading.py(355): wait"))),
    "nothing recorded": device(each(lambda one: setattr(one, "now", one.now + 9_000))),
    "launch-bound, 1 GPU": device(each(launching(3_000))),
    "launch-bound, 2 GPUs": device(each(launching(3_000)), ranks=2),
    "launch-bound in the optimizer": device(each(launching(3_000, "Optimizer.step#AdamW.step"))),
    "waiting for the device": device(
        each(lambda one: one.item()),
        each(works(3_000, "train.py(50): log")),
        each(kernels(3_000)),
        each(lambda one: one.item()),
        each(works(3_000, "train.py(50): log")),
    ),
    "allocating memory": device(each(ALLOCATES)),
    "freeing memory": device(each(ALLOCATES), each(waits(9_000, "cudaFree"))),
    "compiling": device(each(works(9_000, "Torch-Compiled Region: 0/0")), each(waits(9_000, "cudaModuleLoadData"))),
    "steps of very different length": device(each(kernels(30_000, 4), lambda _, step: step in (2, 7))),
    "1 step": device(steps=1),
    "2 steps, 2 GPUs": device(9_000, ranks=2, steps=2),
    "2 of 4 GPUs have a trace": device(9_000, ranks=4, left_out=(1, 2)),
    "ranks begin to record apart": device(9_000, ranks=2, steps=4, begins={1: 60_000}),
    "2 of 4 GPUs, few steps": device(9_000, ranks=4, steps=2, left_out=(1, 2)),
}

# ---- late ranks ------------------------------------------------------------------------------------------------------


def simulated(faults: Faults, light: Collection[int] = (), **changes: Any) -> Make:
    """Return data-parallel training on 4 devices of 2 hosts, simulated with a fault; `light` ones record lightly."""
    shape: dict[str, Any] = {"layers": 4, "kernels": 4, "kernel_us": 300} | changes
    cluster = Cluster("ddp", {"dp": 4}, Model(transfer_us={"dp": 1500}, mix=MIX, **shape), faults, per_host=2)

    def make(folder: Path) -> Report:
        simulate(cluster._replace(steps=10 if faults.collect_us else 5), folder / "run")
        for rank in light:
            lighten(folder / "run" / f"rank{rank}.json")
        return analyzed(folder)

    return make


OFTEN: Final = (1, 2, 5, 8, 9, 11, 14, 15, 18, 20, 21, 23)
LATE: Final[Mapping[str, Make]] = {
    "1 of 2 late in a function": device(each(works(9_000), of(1)), ranks=2),
    "1 of 8 late in a function": device(each(works(9_000), of(5)), ranks=8),
    "1 of 2 late in compute": device(each(kernels(9_000), of(1)), ranks=2),
    "1 of 8 late in more kernels": device(each(kernels(900, 10), of(5)), ranks=8),
    "1 of 4 late by its clock": simulated(Faults(device={1: 1.2})),
    "1 of 4 late by its memory": simulated(Faults(kernels={1: KernelFaults(slower=dict.fromkeys(MEMORY_BOUND, 2.0))})),
    "1 of 4 late by larger batches": simulated(Faults(kernels={1: KernelFaults(larger=dict.fromkeys(OF_BATCH, 1.3))})),
    "1 of 4 late by more kernels": simulated(Faults(kernels={1: KernelFaults(more=dict.fromkeys(OF_BATCH, 1.25))})),
    "1 of 4 late by one kernel": simulated(Faults(kernels={1: KernelFaults(larger={"grouped_gemm": 3.0})})),
    "1 of 4 late by slow launches": simulated(Faults(host={1: 4.0}), kernels=8, kernel_us=24),
    "1 of 4 late, recorded lightly": simulated(Faults(work_us={2: 15_000}), light=(1, 2, 3)),
    "4 that launch slowly, 3 recorded lightly": simulated(
        Faults(host=dict.fromkeys(range(4), 8.0)), light=(1, 2, 3), kernels=8, kernel_us=24
    ),
    "2 of 4 late by their clocks: all of a host": simulated(Faults(device={2: 1.2, 3: 1.2})),
    "garbage collection on changing ranks": simulated(Faults(collect_us=9_000), is_synchronised=True),
    "1 of 2 late in data loading": device(each(loads(9_000), of(1)), ranks=2),
    "1 of 2 late in copies": device(each(copies(9_000, "Memcpy DtoH (Device -> Pageable)"), of(1)), ranks=2),
    "1 of 2 late in launching": device(each(launching(1_500), of(1)), ranks=2),
    "1 of 2 late, cause unknown": device(each(lambda one: setattr(one, "now", one.now + 9_000), of(1)), ranks=2),
    "2 of 8 late in a function": device(each(works(9_000), of(2, 5)), ranks=8),
    "2 of 8 late in different things": device(each(works(9_000), of(2)), each(loads(8_000), of(5)), ranks=8),
    "4 of 8 late: all of a host": device(each(works(9_000), of(4, 5, 6, 7)), ranks=8),
    "2 late in turns": device(each(works(9_000), lambda rank, step: rank == step % 2), ranks=2),
    "3 late in turns": device(each(works(9_000), lambda rank, step: rank == step % 3), ranks=3, steps=12),
    "1 of 2 late in every third step": device(
        each(works(9_000), lambda r, s: r == 1 and s % 3 == 2), ranks=2, steps=12
    ),
    "1 of 2 late at times": device(each(works(9_000), lambda r, s: r == 1 and s in OFTEN), ranks=2, steps=24),
    "1 of 2 late at times, within chance": device(
        each(works(9_000), lambda r, s: r == 1 and s in OFTEN), ranks=2, steps=12
    ),
    "1 of 2 late in one step": device(each(works(30_000), lambda r, s: (r, s) == (1, 4)), ranks=2),
    "1 of 8 late in one step, compute": device(each(kernels(30_000), lambda r, s: (r, s) == (5, 4)), ranks=8),
    "2 of 4 late in one step": device(each(kernels(30_000), lambda r, s: r in (1, 2) and s == 4), ranks=4),
    "1 of 2 late in the first step": device(each(kernels(30_000), lambda r, s: (r, s) == (1, 0)), ranks=2),
    "1 of 2 late in one step, beside communication": device(
        each(works(30_000), lambda r, s: (r, s) == (1, 4)), 9_000, ranks=2
    ),
    "1 of 8 early": device(each(kernels(9_000), lambda rank, _: rank != 0), ranks=8),
    "3 of 8 early": device(each(kernels(9_000), lambda rank, _: rank > 2), ranks=8),
    "ranks join last in 2 steps": device(each(works(9_000), of(1, 2)), ranks=4, steps=2),
    "late, and communication": device(each(works(9_000), of(1)), 9_000, ranks=2),
    "late by less than is reported": device(each(works(500), of(1)), ranks=2),
}

# ---- pipelines -------------------------------------------------------------------------------------------------------


def pipeline(orders: Sequence[Order], stage_us: Callable[[int, str], int], steps: int = 3) -> Make:
    def make(folder: Path) -> Report:
        line, at = DevicePipeline(range(len(orders)), len(orders), batched=True), 0
        for number in range(steps):
            at = line.step(number, at, orders, stage_us)
        (folder / "run").mkdir()
        for rank, builder in zip(line.ranks, line.builders, strict=True):
            builder.write(folder / "run" / f"rank{rank}.json")
        return analyzed(folder)

    return make


def stages(heavy: int | None = None, times: float = 1.3) -> Callable[[int, str], int]:
    return lambda stage, kind: round((10_000 if kind == "F" else 20_000) * (times if stage == heavy else 1))


PIPELINES: Final[Mapping[str, Make]] = {
    "a pipeline of 4 stages, GPipe": pipeline(gpipe(4, 8), stages()),
    "a pipeline of 2 stages, 1F1B": pipeline(one_forward_one_backward(2, 4), stages()),
    "a pipeline with a heavy stage": pipeline(one_forward_one_backward(4, 8), stages(1)),
    "a pipeline with a stage 10 times as heavy": pipeline(one_forward_one_backward(2, 8), stages(1, 10)),
}

# ---- CPU -------------------------------------------------------------------------------------------------------------


def processors(
    ranks: int = 2,
    *,
    load: int = 2,
    compute_us: int = 78,
    wait: int = 10,
    steps: Sequence[int] = range(6),
    late: Collection[int] = (),
    stack: Stack = (),
    marked: bool = True,
) -> Make:
    """Steps of 100 ms on ranks without a device: load, compute, communicate; ms. `stack` is sampled in idle time."""

    def builder(rank: int) -> TraceBuilder:
        own = TraceBuilder(rank, ranks, backend="gloo", host_name="node0")
        rows = []
        for number in steps:
            at, extra = number * 100_000, 30 if rank in late else 0
            if marked:
                own.step(number, at, 100_000)
            own.data_loading(at, (load + extra) * 1000)
            work_us = (compute_us - (30 if late else 0)) * 1000
            own.op("aten::addmm", at + (load + extra) * 1000, work_us)
            begin = at + (load + extra) * 1000 + work_us
            own.gloo("all_reduce", begin, (wait + (30 if late and not extra else 0)) * 1000)
            rows += [
                (at + us, stack if us > 90_000 else [("train.py(1): main", 5)]) for us in range(1000, 100_001, 1000)
            ]
        return own.header(perfkit=header(recorded(rows))) if stack else own

    def make(folder: Path) -> Report:
        (folder / "run").mkdir()
        for rank in range(ranks):
            builder(rank).write(folder / "run" / f"rank{rank}.json")
        return analyzed(folder)

    return make


CPUS: Final[Mapping[str, Make]] = {
    "compute-bound, 1 CPU rank": processors(1, compute_us=97, wait=0),
    "communication, 2 CPU ranks": processors(compute_us=50, wait=45),
    "data loading, 1 CPU rank": processors(1, load=60, compute_us=38, wait=0),
    "data loading, 2 CPU ranks, and late": processors(load=30, compute_us=58, late=[1]),
    "1 of 2 CPU ranks late": processors(late=[1]),
    "idle, 2 CPU ranks, with a line": processors(
        compute_us=60, stack=[("train.py(40): Log.write", 44, "time.sleep"), ("train.py(1): main", 9)]
    ),
    "idle, 2 CPU ranks, without a line": processors(compute_us=60),
    "no steps are marked": processors(1, compute_us=90, wait=0, marked=False),
}

# ---- runs ------------------------------------------------------------------------------------------------------------


def folder_of(
    walls_ms: Sequence[int], state: Any = "completed", failure: Failure | None = None, hang: bool = False
) -> Make:
    """A run with a manifest, the step times in it, and one trace."""

    def make(folder: Path) -> Report:
        run = folder / "run"
        run.mkdir()
        walls_ns = [wall * MS for wall in walls_ms]
        record = RankRecord(
            rank=0,
            local_rank=0,
            node_rank=0,
            host="a",
            device="cpu",
            device_name="cpu",
            threads=1,
            step_wall_ns=walls_ns,
            load_ns=[MS for _ in walls_ns],
            loss=[None for _ in walls_ns],
        )
        kinds = ["cold", *["active"] * 4, *["plain"] * (len(walls_ns) - 5)]
        world = World(world_size=1, nodes=1, launcher="perfkit", local_world_sizes=[1])
        made = replace(
            make_manifest("completed"), state=state, ranks=[record], step_kinds=kinds, failure=failure, world=world
        )
        write_manifest(run, made)
        trace = TraceBuilder(rank=0, world_size=1, backend="gloo")
        for number in range(4):
            trace.step(number, number * 52_000, 50_000).op("aten::mm", number * 52_000, 48_000)
        trace.write(run / "rank0.json")
        if hang:
            at = "2026-11-27T13:54:02+00:00"
            add_hang(run, NoticedHang(noticed_at=at, step=40, idle_ns=2_000 * MS, headline="rank 0 waits"))
        return analyzed(folder)

    return make


def logged(own: Any) -> Make:
    def make(folder: Path) -> Report:
        write_run(folder / "run", own())
        return analyzed(folder)

    return make


EVEN: Final = [900, *([50, 51] * 30)]
RUNS: Final[Mapping[str, Make]] = {
    "steps without the profiler are known": folder_of(EVEN),
    "a hang": folder_of(EVEN, hang=True),
    "out of memory, with the traces": folder_of(EVEN[:26], "failed", Failure(rank=0, message="OutOfMemoryError")),
    "a stall": folder_of([*EVEN, 4_000, *EVEN[1:]]),
    "a step log alone": logged(lambda: own_times(2, 80)),
    "a step log with changes, stalls and a late rank": logged(lambda: eventful_times(4)),
}


def network(program: str, mesh: Mapping[str, int], faults: Faults) -> Make:
    """A simulated cluster of two ranks per host."""

    def make(folder: Path) -> Report:
        transfers = {"dp": 3_000, "shard": 900, "replicate": 1_200, "pp": 800}
        times = {name: transfers[name] for name in mesh}
        model = Model(4, 2, 400, times, micro_batches=4, is_synchronised=True)
        simulate(Cluster(program, mesh, model, faults, per_host=2, jitter=0.03, unequal=0.03), folder / "run")
        return analyzed(folder)

    return make


_HYBRID: Final = {"replicate": 2, "shard": 4}
NETWORKS: Final[Mapping[str, Make]] = {
    "a slow network card of a host": network("hsdp", _HYBRID, Faults(hosts={2: 2.5})),
    "a slow link of two hosts": network("hsdp", _HYBRID, Faults(pairs={(0, 2): 2.5})),
    "a slow network card of a rank": network("hsdp", {"replicate": 4, "shard": 2}, Faults(cards={3: 3.0})),
    "a network that is busy in two steps": network("fsdp", {"shard": 4}, Faults(congested={3: 3.0, 4: 3.0})),
    "a pipeline over hosts with a slow card": network("pp", {"dp": 2, "pp": 4}, Faults(hosts={1: 3.0})),
    "a slow network and a late rank": network("hsdp", _HYBRID, Faults(hosts={2: 2.5}, load_us={5: 20_000})),
}

SITUATIONS: Final[Mapping[str, Make]] = {**DEVICES, **LATE, **PIPELINES, **NETWORKS, **CPUS, **RUNS}
