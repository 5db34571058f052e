"""When conditions fire, on made steps."""

import random

import pytest

from perfkit.options.conditions import parse_condition
from perfkit.record.on_demand.requesting_rank import Firing, Trigger

MS = 1_000_000


def firings(condition: str, durations_ms: list[float], loads_ms: list[float] | None = None) -> dict[int, Firing]:
    trigger = Trigger(parse_condition(condition))
    found = {}
    for step, duration in enumerate(durations_ms):
        load_ns = None if loads_ms is None else round(loads_ms[step] * MS)
        firing = trigger.step_ended(step, round(duration * MS), load_ns)
        if firing is not None:
            found[step] = firing
            trigger.asked(firing.first_step, firing.period)
    return found


def test_a_long_step_fires_once() -> None:
    found = firings("step > 1.5x median", [10.0] * 100 + [31.0] + [10.0] * 50)
    assert list(found) == [100]
    assert found[100].reason == "step 100 took 31 ms, 3.1 times the median"
    assert found[100].first_step is None


def test_steps_near_the_limit_and_a_slow_begin_do_not_fire() -> None:
    assert firings("step > 1.5x median", [500.0] * 5 + [10.0, 14.9] * 200) == {}


def test_it_fires_again_only_after_it_was_quiet() -> None:
    bad = [10.0] * 50 + [40.0, 10.0] * 20 + [10.0] * 30 + [40.0] + [10.0] * 9 + [40.0]
    assert list(firings("step > 1.5x median", bad)) == [50, 120]


def test_steps_that_stay_slow_fire_once() -> None:
    assert list(firings("step > 1.5x median", [10.0] * 100 + [30.0] * 1000)) == [100]


def test_noise_without_long_steps_does_not_fire() -> None:
    for seed in range(20):
        noise = random.Random(seed)  # noqa: S311
        assert firings("step > 1.5x median", [noise.gauss(100, 5) for _ in range(2000)]) == {}


def test_the_next_periodic_stall_is_asked_for_once() -> None:
    durations = [10.0] * 4000
    durations[500::500] = [60.0] * len(durations[500::500])
    for step in (777, 1203, 2888):
        durations[step] = 50.0
    found = firings("step > 1.5x median", durations)
    # What comes at 500 and 1000 may be anything; three at equal distances are a period, which is then known.
    assert [(step, one.first_step, one.period) for step, one in found.items()] == [
        (500, None, None),
        (777, None, None),
        (1000, None, None),
        (1203, None, None),
        (1500, 1999, 500),
        (2888, None, None),
    ]
    assert found[1500].reason.endswith("like steps 500 and 1000")


def test_a_periodic_stall_fires_until_it_is_asked_for() -> None:
    trigger = Trigger(parse_condition("step > 1.5x median"))
    fired = [
        (step, firing.first_step)
        for step in range(400)
        if (firing := trigger.step_ended(step, (60 if step % 50 == 49 else 10) * MS, None)) and firing.period
    ]
    assert fired == [(149, 198), (199, 248), (249, 298), (299, 348), (349, 398), (399, 448)]
    trigger.asked(448, 50)
    assert not any(trigger.step_ended(step, (60 if step % 50 == 49 else 10) * MS, None) for step in range(400, 800))


def test_noise_before_a_stall_does_not_hide_its_period() -> None:
    durations = [10.0] * 700
    durations[149::150] = [100.0] * len(durations[149::150])
    durations[145] = durations[274] = durations[299 - 3] = 20.0
    found = firings("step > 1.5x median", durations)
    assert [(step, one.first_step) for step, one in found.items() if one.period] == [(449, 598)]


def test_equal_distances_among_many_stalls_are_no_period() -> None:
    noise = random.Random(0)  # noqa: S311
    durations = [40.0 if noise.random() < 0.03 else 10.0 for _ in range(3000)]
    assert sum(one.period is not None for one in firings("step > 1.5x median", durations).values()) <= 1


def test_the_loaders_share_is_that_of_ten_steps() -> None:
    waits = [0.0] * 50 + [9.0] + [0.0] * 50 + [4.0] * 30 + [0.0] * 50
    found = firings("loader wait > 30 %", [10.0] * len(waits), waits)
    assert list(found) == [108]  # eight of ten steps with 40 %
    assert found[108].reason == "32% of steps 99 to 108 waited for the loader"
    assert firings("loader wait > 30 %", [10.0] * len(waits)) == {}  # unknown waits


def test_every_so_many_steps() -> None:
    assert list(firings("every=100", [10.0] * 350)) == [100, 200, 300]


def test_a_condition_that_a_ranks_own_steps_do_not_show_is_refused() -> None:
    with pytest.raises(ValueError, match="'rank late > 20 %'"):
        Trigger(parse_condition("rank late > 20 %"))
