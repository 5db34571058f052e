from typing import Any

from perfkit.records.plan import MemoryNeed, PlannedDevice, PlannedLayout, StepEstimate
from perfkit.tools.plan.choice import choose, decide

DEVICE = PlannedDevice(
    name="made up",
    memory_bytes=1000,
    flops_per_s=1e12,
    bandwidth_bytes_per_s=None,
    devices_per_host=8,
    host_bytes_per_s=None,
    network_bytes_per_s=None,
    power_watts=None,
    sources=[],
)


def layout(
    dp: str, need: int, step_ms: float | None = 1.0, *, counted: bool = True, refused: str | None = None, **mesh: int
) -> PlannedLayout:
    memory = MemoryNeed(
        parameters_bytes=need,
        gradients_bytes=0,
        optimizer_bytes=0,
        activations_bytes=0 if counted else None,
        buffers_bytes=0,
        peak_bytes=need,
        peak_at="optimizer",
        reserve_bytes=0,
    )
    over = need - 1000
    return PlannedLayout(
        name=dp,
        dp=dp,
        mesh=mesh or {"dp": 8},
        checkpointing="none",
        batch_size=1,
        micro_batches=1,
        memory=memory,
        fits=False if over > 0 else (True if counted else None),
        over_bytes=over,
        traffic=[],
        step=None if step_ms is None else estimate(step_ms),
        terms=[],
        command=None,
        refused=refused,
    )


def estimate(step_ms: float) -> StepEstimate:
    parts: dict[str, Any] = dict.fromkeys(StepEstimate.__struct_fields__, 0.0)
    return StepEstimate(**(parts | {"step_ns": step_ms * 1e6}))


def test_the_simplest_wins_among_those_that_the_prediction_cannot_tell_apart() -> None:
    best, reason = choose([layout("ddp", 900, 1.04), layout("zero3", 500, 1.0)], DEVICE)
    assert best == 0
    assert "simplest whose predicted step (1.04 ms) is within 5 %" in reason


def test_what_is_clearly_faster_wins_over_what_is_simpler() -> None:
    best, reason = choose([layout("ddp", 900, 1.2), layout("zero2", 500, 1.0)], DEVICE)
    assert best == 1
    assert reason.startswith("the shortest predicted step (1.00 ms) of the 2 that fit")


def test_what_does_not_fit_is_never_the_best() -> None:
    assert choose([layout("ddp", 1001, 0.1), layout("zero3", 1000, 9.0)], DEVICE)[0] == 1


def test_what_perfkit_does_not_run_is_the_best_only_where_it_is_clearly_faster() -> None:
    layouts = [layout("ddp", 900, 1.0, refused="a reason"), layout("zero3", 900, 1.04)]
    assert choose(layouts, DEVICE)[0] == 1
    best, reason = choose([layouts[0], layout("zero3", 900, 1.06)], DEVICE)
    assert best == 0
    assert reason.endswith("`perfkit run` refuses it: a reason")


def test_if_nothing_fits_the_smallest_need_is_named() -> None:
    best, reason = choose([layout("ddp", 5000), layout("zero3", 1200)], DEVICE)
    assert best is None
    assert "zero3 needs the least, 1.20 kB, which is 200 B too much" in reason


def test_without_activations_nothing_is_said_to_fit() -> None:
    best, reason = choose([layout("ddp", 5000, counted=False), layout("zero3", 100, counted=False)], DEVICE)
    assert best is None
    assert "activations are not counted" in reason


def test_without_a_device_there_is_no_decision() -> None:
    assert choose([layout("ddp", 1)], None)[0] is None
    assert decide([layout("ddp", 1)], None) == []


def test_the_decision_ends_at_the_first_yes() -> None:
    layouts = [layout("ddp", 3000), layout("zero3", 1100), layout("zero3", 600, tp=2), layout("zero3", 300, pp=2)]
    lines = decide(layouts, DEVICE)
    assert [line.split("? ")[1].split(":")[0] for line in lines] == ["No", "No", "Yes"]
    assert "zero3 needs 1.10 kB, 100 B too much" in lines[1]
    assert decide([layout("ddp", 10), *layouts], DEVICE)[0].endswith("Yes: ddp needs 10 B.")
