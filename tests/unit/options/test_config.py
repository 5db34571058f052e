from typing import Any

import msgspec
import pytest

from perfkit.base.parsing import parse_duration
from perfkit.errors import UsageError
from perfkit.options.run import RunConfig, parse_injection
from perfkit.options.schedule import DEFAULT_SCHEDULE, Schedule, default_steps, step_kind
from perfkit.options.script import ScriptConfig
from perfkit.records.manifest import Injection


def test_kinds_of_steps() -> None:
    schedule = Schedule.parse("wait=1, warmup=1,active=2,repeat=2,skip_first=1")
    kinds = [step_kind(schedule, step) for step in range(12)]
    assert kinds == [
        *("cold", "plain", "warmup", "active", "active"),
        *("cold", "warmup", "active", "active", "cold", "plain", "plain"),
    ]
    assert [step for step in range(12) if schedule.ends_cycle(step)] == [4, 8]
    assert [schedule.cycle(step) for step in (1, 4, 5, 8)] == [0, 0, 1, 1]
    assert [step_kind(None, step) for step in range(3)] == ["cold", "plain", "plain"]


def test_a_schedule_that_records_at_once() -> None:
    schedule = Schedule.parse("wait=0,warmup=0,active=1")
    assert [step_kind(schedule, step) for step in range(3)] == ["active", "cold", "plain"]


@pytest.mark.parametrize(
    ("last", "kept"), [(1, [1]), (2, [1, 2]), (4, [2, 3, 4]), (8, [4, 5, 6, 7, 8]), (11, [*range(6, 12)])]
)
def test_a_run_that_ends_within_its_first_cycle_keeps_the_later_half_of_its_steps(last: int, kept: list[int]) -> None:
    schedule = Schedule.parse(DEFAULT_SCHEDULE)
    assert [step for step in range(18) if schedule.records(step)] == [*range(1, 18)]
    assert [*range(schedule.first_kept(1, last), last + 1)] == kept


def test_a_whole_cycle_keeps_its_active_steps() -> None:
    for text in (DEFAULT_SCHEDULE, "warmup=7,active=2", "warmup=1,active=3", "wait=0,warmup=0,active=1", "repeat=2"):
        schedule = Schedule.parse(text)
        for cycle in range(schedule.repeat):
            of_cycle = [step for step in range(schedule.steps) if schedule.cycle(step) == cycle]
            first = next(step for step in of_cycle if schedule.records(step))
            kept = [*range(schedule.first_kept(first, of_cycle[-1]), of_cycle[-1] + 1)]
            assert kept == [step for step in of_cycle if schedule.state(step) == "active"]


def test_scripts_record_the_same_steps_as_loops() -> None:
    loop, script = RunConfig().plan, ScriptConfig().plan
    assert loop is not None
    assert script is not None
    assert loop == Schedule()
    steps = range(30)
    assert [loop.records(step) for step in steps] == [script.records(step) for step in steps]
    assert [step_kind(loop, step) for step in steps] == [step_kind(script, step) for step in steps]


def test_default_steps_leave_three_warm_plain_ones() -> None:
    for schedule in (Schedule(), None, Schedule(repeat=3)):
        kinds = [step_kind(schedule, step) for step in range(default_steps(schedule))]
        assert kinds[-3:] == ["plain"] * 3
        assert kinds[-4] == "cold"


def test_steps_that_take_batches_prepared_while_a_trace_was_written_are_cold() -> None:
    schedule = Schedule(wait=2, warmup=1, active=3, repeat=2)
    kinds = [step_kind(schedule, step, prepared=4) for step in range(default_steps(schedule, prepared=4))]
    recorded = ["warmup", "active", "active", "active"]
    assert kinds == ["cold", "plain", *recorded, "cold", "cold", *recorded, *["cold"] * 5, *["plain"] * 3]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("active=0", "of at least 1"),
        ("repeat=0", "of at least 1"),
        ("wait=-1", "of at least 0"),
        ("wait=1,wait=2", "wait is given twice"),
        ("pause=1", "pause"),
        ("wait", "key=number"),
        ("", "key=number"),
        ("active=x", "expected a whole number, not text"),
    ],
)
def test_invalid_schedules(text: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        Schedule.parse(text)


def test_durations() -> None:
    assert parse_duration("60ms", "x") == 60_000_000
    assert parse_duration("1.5s", "x") == 1_500_000_000
    assert parse_duration("10m", "x") == 600 * 10**9
    for text in ("10", "ms", "-1s", "1d", f"{'9' * 400}h"):
        with pytest.raises(UsageError, match="not a duration"):
            parse_duration(text, "--timeout")


def test_injections() -> None:
    found = parse_injection("rank=1,phase=backward,delay=60ms")
    assert found == Injection(rank=1, phase="backward", delay_ns=60_000_000)
    assert parse_injection("phase=data_loading,delay=1s").rank is None


@pytest.mark.parametrize(
    "text",
    [
        "phase=backward",
        "delay=1s",
        "phase=to_device,delay=1s",
        "phase=backward,delay=0ms",
        "phase=backward,delay=1s,rank=-1",
        "phase=backward,delay=1s,delay=2s",
        "phase=backward,delay=1s,node=1",
    ],
)
def test_invalid_injections(text: str) -> None:
    with pytest.raises(UsageError, match="--inject"):
        parse_injection(text)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"steps": 3, "epochs": 1}, "--steps and --epochs"),
        ({"steps": 1}, "1 step is too few.*takes 2"),
        ({"steps": 4, "schedule": "wait=3,warmup=1"}, "4 steps are too few.*takes 5"),
        ({"profile": False, "with_stack": True}, "--with-stack has no effect"),
        ({"timeout": "10ms"}, "--timeout"),
        ({"monitor_bytes": "1M"}, "--monitor-bytes 1M has no effect without --monitor: add it"),
        ({"monitor": True, "monitor_bytes": "1K"}, "--monitor-bytes 1K: must be at least 64KiB"),
        ({"hang_after": "10ms"}, "--hang-after 10ms: must be at least 1s"),
        ({"hang_after": "soon"}, "--hang-after: 'soon' is not a duration"),
        ({"name": "a/b"}, "--name"),
        ({"inject": ("x",)}, "--inject"),
    ],
)
def test_invalid_combinations(options: dict[str, object], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        RunConfig(**options)  # type: ignore[arg-type]


def test_what_is_known_only_later() -> None:
    config = RunConfig(epochs=2, inject=("rank=1,phase=forward,delay=1ms",))
    assert config.total_steps(4) == 8
    with pytest.raises(UsageError, match="too few"):
        RunConfig(epochs=1).total_steps(1)
    config.check_world(2)
    with pytest.raises(UsageError, match="ranks 0 to 0"):
        config.check_world(1)
    assert RunConfig(profile=False, steps=2).total_steps(100) == 2
    assert RunConfig(accumulate=4).total_steps(100, prepared=6) == default_steps(Schedule(), prepared=2)


def test_options_of_workloads_and_scripts_are_described_alike() -> None:
    described = [
        {field.name: description_of(field.type) for field in msgspec.structs.fields(config)}
        for config in (RunConfig, ScriptConfig)
    ]
    shared = described[0].keys() & described[1].keys()
    assert {"schedule", "timeout", "trace_dir", "name", "record_shapes"} <= shared
    for name in shared:
        first, second = (texts[name].rstrip(".").partition(":")[0].partition(",")[0] for texts in described)
        assert second == first, name


def description_of(annotation: Any) -> str:
    return str(msgspec.json.schema(annotation).get("description"))
