"""What waits for batches were spent on, in traces whose fetches are known."""

from pathlib import Path
from typing import Any

import pytest

from perfkit.engine.runs.data_loading import main_cause
from perfkit.pipeline import analyze as pipeline
from perfkit.records.per_rank.loading import WAIT_CAUSES
from perfkit.records.run import RunReport
from tests.support.traces.trace_builder import BASE_NS, TraceBuilder

WAIT = 60_000
STEP = 100_000
"""Microseconds."""

NEXT = "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"


def fetch(
    worker: int, begin: int, get: int, *, cpu: int = 0, collate: int = 100, slowest: int = 0, index: int = 117
) -> list[int]:
    """A fetch of 8 samples; times in microseconds."""
    return [
        worker,
        BASE_NS + begin * 1000,
        get * 1000,
        cpu * 1000,
        collate * 1000,
        8,
        index,
        (slowest or get // 8) * 1000,
    ]


def analyse(folder: Path, kind: str, ranks: int) -> RunReport:
    """Ten steps that wait 60 ms for batches which two workers fetch in turns."""
    for rank in range(ranks):
        builder = TraceBuilder(rank, ranks, backend="gloo")
        fetches = []
        for step in range(10):
            at, worker = step * STEP, step % 2
            waits = WAIT
            if kind == "main":
                # Another loader in the process that trains takes longer.
                get = 50_000 if worker else 1_000
                waits = WAIT if worker else 2_000
                fetches.append(fetch(-worker, at + waits - get - 200, get))
            elif kind == "alone":
                # What the process that trains needs after it fetched is no handing over.
                fetches.append(fetch(-1, at + 500, 1_000))
            elif kind == "worker":
                get = 150_000 if worker else 1_000
                waits = WAIT if worker else 2_000
                fetches.append(fetch(worker, at + waits - get - 200, get))
            elif kind in ("sample", "stream"):
                index = 117 if kind == "sample" else -1
                slow = step == 5
                waits = WAIT if slow else 2_000
                get = 58_000 if slow else 1_000
                fetches.append(fetch(worker, at + waits - get - 200, get, slowest=57_000 if slow else 130, index=index))
                # The worker goes on at once: this is not what the step waits for.
                fetches.append(fetch(worker, at + waits - 90, 40, collate=10))
            elif kind == "starting":
                # The worker has fetched nothing for long, and nothing while the step waits.
                fetches.append(fetch(worker, at + waits - 3_000, 2_000))
            elif kind == "ready":
                fetches.append(fetch(worker, at - 30_000, 20_000))
            else:
                get = 1_000 if kind == "collating" else 50_000
                collate = 50_000 if kind == "collating" else 100
                cpu = get if kind == "transforming" else 0
                fetches.append(fetch(worker, at + waits - get - collate - 100, get, cpu=cpu, collate=collate))
            builder.step(step, at, STEP).data_loading(at, waits, name=NEXT).op("aten::mm", at + waits, STEP - waits)
        builder.header(perfkit={"rank": rank, "world_size": ranks, "fetches": sorted(fetches, key=lambda one: one[1])})
        builder.write(folder / f"rank{rank}.json")
    (run,) = pipeline.analyze(folder, cache=False).runs
    return run


@pytest.mark.parametrize("ranks", [1, 2])
@pytest.mark.parametrize(
    ("kind", "cause", "said"),
    [
        ("reading", "reading", {"load_reading": {}}),
        ("transforming", "transforming", {"load_transforming": {}}),
        ("collating", "collating", {"load_collating": {}}),
        ("worker", "slow_worker", {"slow_worker": {"worker": 1}}),
        ("sample", "slow_sample", {"slow_sample": {"index": 117, "ns": 57_000_000}}),
        ("stream", "slow_sample", {"slow_samples": {}}),
        ("main", "reading", {"load_reading": {}}),
        ("ready", "transfer", {"load_transfer": {}}),
        ("starting", "starting", {"load_starting": {}}),
    ],
)
def test_the_cause_of_waiting_is_named(tmp_path: Path, kind: str, cause: str, said: dict[str, Any], ranks: int) -> None:
    run = analyse(tmp_path, kind, ranks)
    named = main_cause(run.ranks)
    assert named is not None
    facts = {one.name: one.values for one in named[1].values["what"]}
    assert named[0] == cause
    for name, values in said.items():
        assert values.items() <= facts[name].items()
    for rank in run.ranks:
        assert rank.loading is not None
        assert sum(getattr(rank.loading.waits_ns, name) for name in WAIT_CAUSES) == sum(
            step.loads.sum_ns for step in rank.steps
        )
        assert rank.loading.slow_workers == ([1] if kind == "worker" else [])
        assert [one.index for one in rank.loading.slow_samples] == ([117] if kind == "sample" else [])


def test_a_worker_that_fetched_before_was_busy(tmp_path: Path) -> None:
    builder, fetches = TraceBuilder(0, 1), []
    for step in range(5):
        at = step * STEP
        fetches += [fetch(0, at + 1_000, 19_000, collate=0), fetch(0, at + 20_000, 39_000, collate=0)]
        builder.step(step, at, STEP).data_loading(at, WAIT, name=NEXT).op("aten::mm", at + WAIT, STEP - WAIT)
    builder.header(perfkit={"rank": 0, "world_size": 1, "fetches": fetches}).write(tmp_path / "a.json")
    (run,) = pipeline.analyze(tmp_path, cache=False).runs
    assert run.ranks[0].loading is not None
    waits_ns = run.ranks[0].loading.waits_ns
    assert (waits_ns.workers_busy, waits_ns.starting, waits_ns.reading) == (5 * 20_000_000, 0, 5 * 39_000_000)


def test_a_process_without_workers_is_handed_nothing(tmp_path: Path) -> None:
    run = analyse(tmp_path, "alone", 1)
    assert main_cause(run.ranks) is None
    assert run.ranks[0].loading is not None
    assert run.ranks[0].loading.waits_ns.transfer == 0


def test_a_trace_without_fetches_names_no_cause(tmp_path: Path) -> None:
    TraceBuilder(0, 1).step(0, 0, 100).data_loading(0, 60, name=NEXT).op("aten::mm", 60, 30).write(tmp_path / "a.json")
    (run,) = pipeline.analyze(tmp_path, cache=False).runs
    assert run.ranks[0].loading is None
    assert main_cause(run.ranks) is None


@pytest.mark.parametrize("marked", [True, False])
def test_the_end_of_a_pass_is_no_load(tmp_path: Path, *, marked: bool) -> None:
    """The second step finds that the loader has no batch left, waits for it, and starts it again."""
    builder = TraceBuilder(0, 1)
    for step in range(3):
        at = step * STEP
        builder.step(step, at, STEP).op("aten::mm", at + 50_000, 40_000)
        if step != 1:
            builder.data_loading(at, 2_000, name=NEXT)
    builder.data_loading(STEP, 30_000, name=NEXT).data_loading(STEP + 35_000, 3_000, name=NEXT)
    if marked:  # a function of the program that starts the loader again, and returns a batch
        builder.data_loading(STEP, 40_000, name="perfkit.data_loading")
    ended = [BASE_NS + (STEP - 5) * 1000, BASE_NS + (STEP + 30_005) * 1000]
    builder.header(perfkit={"rank": 0, "world_size": 1, "without_batch": [ended]})
    builder.write(tmp_path / "rank0.json")
    (run,) = pipeline.analyze(tmp_path, cache=False).runs
    assert [step.loads.spans_ns for step in run.ranks[0].steps] == [[2_000_000], [3_000_000], [2_000_000]]
    assert run.ranks[0].steps[1].exposed_ns.data_loading == (40_000_000 if marked else 33_000_000)
    assert run.data_loading is not None
    (times,) = run.data_loading.times
    assert (times.count, times.quartiles_ns[1], times.max_ns) == (3, 2_000_000, 3_000_000)
