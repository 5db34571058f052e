"""Processes with several devices, against the reference and against the same devices in processes of their own."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from perfkit.engine.attribution.items import find_items
from perfkit.engine.trace_context import TraceContext
from perfkit.pipeline.analyze import analyze
from perfkit.records.common import CATEGORIES
from perfkit.trace.reader import read_trace
from tests.property.test_metrics import figures_of_product, figures_of_reference
from tests.support.traces import generated_traces, trace_builder
from tests.support.traces.every_trace import summary_of, summary_of_generated
from tests.support.traces.several_devices import NCCL, STEP_US, Kernel, SeveralDevices

DEVICE_CATEGORIES = ("kernel", "gpu_memcpy", "gpu_memset")


def in_order(work: list[Kernel]) -> list[Kernel]:
    """Return the kernels that streams can have run: one after the other, as they were launched."""
    kept: dict[tuple[int, int], list[Kernel]] = {}
    for one in sorted(work, key=lambda one: one.start_us):
        before = kept.setdefault((one.device, one.stream), [])
        last = before[-1] if before else None
        if last is None or (
            last.start_us + last.us < one.start_us and (last.launched_us or 0) <= (one.launched_us or 0)
        ):
            before.append(one)
    return [one for stream in kept.values() for one in stream]


def on_devices(document: dict[str, Any], numbers: list[int]) -> dict[str, Any]:
    """Return a trace whose device events, one after the other, are on the given devices."""
    events, place = [], 0
    for event in document["traceEvents"]:
        if event["cat"] in DEVICE_CATEGORIES:
            event = event | {"pid": numbers[place % len(numbers)]}
            place += 1
        events.append(event)
    return document | {"traceEvents": events}


@generated_traces.slow_to_generate
@given(document=generated_traces.device_traces(), numbers=st.lists(st.integers(0, 12), min_size=1, max_size=6))
def test_generated_traces(
    document: dict[str, Any], numbers: list[int], tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = trace_builder.write(on_devices(document, numbers), tmp_path_factory.getbasetemp() / "several.json")
    product = figures_of_product(path)
    assert product == figures_of_reference(path)
    for step in product:
        assert sum(step["exposed_ns"][category] for category in CATEGORIES) == step["wall_ns"]


@generated_traces.slow_to_generate
@given(document=generated_traces.device_traces(), numbers=st.lists(st.integers(0, 3), min_size=1, max_size=6))
def test_causes_and_devices_add_up(
    document: dict[str, Any], numbers: list[int], tmp_path_factory: pytest.TempPathFactory
) -> None:
    summary = summary_of_generated(on_devices(document, numbers), tmp_path_factory)
    if summary is None:
        return
    for step in summary.steps:
        idle = step.idle_ns
        assert sum(getattr(idle, name) for name in idle.__struct_fields__) == step.exposed_ns.overhead
        assert idle.other_device >= 0
    for category in CATEGORIES if summary.devices else ():
        own = [getattr(device.exposed_ns, category) for device in summary.devices]
        of_rank = sum(getattr(step.exposed_ns, category) for step in summary.steps)
        assert of_rank == pytest.approx(sum(own) / len(own), abs=len(summary.steps))


kernels = st.builds(
    lambda device, start, us, cat, stream: Kernel(device, start, min(us, STEP_US - start), cat, stream, cat),
    st.integers(0, 3),
    st.integers(1_000, 90_000),
    st.integers(1, 60_000),
    st.sampled_from(("kernel", "kernel", "gpu_memcpy")),
    st.integers(7, 9),
)


@generated_traces.slow_to_generate
@given(work=st.lists(kernels, min_size=1, max_size=12).map(in_order))
def test_a_process_is_the_mean_of_its_devices_in_processes_of_their_own(
    work: list[Kernel], tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.getbasetemp()
    devices = {one.device for one in work if one.cat == "kernel"}
    work = [one for one in work if one.device in devices]
    if not work:
        return

    def steps_of(own: list[Kernel]) -> list[Any]:
        return summary_of(SeveralDevices().steps(own).write(folder / "devices.json")).steps

    together = steps_of(work)
    apart = [steps_of([one for one in work if one.device == device]) for device in devices]
    for steps in zip(together, *apart, strict=True):
        for category in CATEGORIES:
            mine, *others = (getattr(step.exposed_ns, category) for step in steps)
            assert mine == pytest.approx(sum(others) / len(others), abs=1)


any_kernels = st.builds(
    lambda device, start, us, name, stream, launched: Kernel(
        device, start, min(us, STEP_US - start), name, stream, launched_us=min(launched, start)
    ),
    st.integers(0, 3),
    st.integers(1_000, 90_000),
    st.integers(1, 60_000),
    st.sampled_from(("gemm", "gemm", NCCL)),
    st.integers(7, 9),
    st.integers(2, 90_000),
)


def differences(work: list[Kernel], path: Path) -> list[float]:
    """Return by how much the ledger, of the critical path, differs from the breakdown, as shares of the step."""
    (run,) = analyze([SeveralDevices().steps(work).write(path)]).runs
    steps = run.ranks[0].steps
    assert run.ledger is not None
    assume(run.ledger.from_path)  # it is the mean where the path does not explain what communicates
    found = []
    for cause in ("compute", "communication", "other_device"):
        row = run.ledger.of(cause)
        ns = sum(getattr(step.idle_ns if cause == "other_device" else step.exposed_ns, cause) for step in steps)
        found.append((row.share if row else 0.0) - ns / sum(step.wall_ns for step in steps))
    return found


@generated_traces.slow_to_generate
@given(work=st.lists(any_kernels, min_size=1, max_size=12).map(in_order))
def test_the_ledger_is_as_exact_as_with_one_device(
    work: list[Kernel], tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.getbasetemp() / "path.json"
    assume(any(one.name == "gemm" for one in work))
    # Between kernels of one stream the path does not look at the others.
    assume(differences([one._replace(device=0) for one in work], path) == pytest.approx([0, 0, 0], abs=0.001))
    assert differences(work, path) == pytest.approx([0, 0, 0], abs=0.001)


@generated_traces.slow_to_generate
@given(work=st.lists(any_kernels, min_size=1, max_size=12).map(in_order))
def test_the_time_of_single_kernels_adds_up_to_the_mean(
    work: list[Kernel], tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = SeveralDevices().steps(work).write(tmp_path_factory.getbasetemp() / "path.json")
    context = TraceContext(read_trace(path), path.name)
    steps = context.break_down(with_causes=False)
    on_device = sum(getattr(step.exposed_ns, c) for step in steps for c in ("compute", "communication", "memcpy"))
    items = find_items(context)
    assert int(items.exposed_ns.sum()) == pytest.approx(on_device, abs=len(steps))
    communication = sum(step.exposed_ns.communication for step in steps)
    assert int(context.collectives.exposed.sum()) == pytest.approx(communication, abs=len(steps))
