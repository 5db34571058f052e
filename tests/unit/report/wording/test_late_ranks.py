"""The sentences about late ranks: one golden file with each form of them."""

from collections.abc import Callable
from typing import Any

from perfkit.records.cross_rank import CategoryLag, LateLoading, OneOffStraggler, Straggler
from perfkit.records.per_rank.loading import SlowWorker
from perfkit.report.wording.stragglers import one_off_cause, one_off_place, stragglers_sentence

MS = 1_000_000


def late(rank: int = 1, ms: float = 20, gain_ms: float = 20, **other: Any) -> Straggler:
    values: dict[str, Any] = {"category": "overhead", "share": 0.2, "steps": 20, "steps_late": 20, "steps_last": 18}
    return Straggler(rank=rank, lag_ns=round(ms * MS), gain_ns=round(gain_ms * MS), **values | other)


def in_turns(rank: int, every: int = 2, steps: int = 10) -> Straggler:
    return late(rank, gain_ms=0, every=every, in_turns=True, one_at_a_time=True, steps_late=steps)


SLOW = SlowWorker(worker=1, ns=150 * MS, usual_ns=MS, ranks=1, of=2)
LOADING = LateLoading(cause="slow_worker", worker=SLOW)
OTHERWISE = [CategoryLag(category="data_loading", lag_ns=9 * MS)]
SEVERAL: dict[str, tuple[list[Straggler], int]] = {
    "one": ([late()], 20),
    "less than its lag": ([late(ms=34, gain_ms=32)], 32),
    "much less": ([late(gain_ms=5)], 5),
    "more": ([late(gain_ms=50)], 50),
    "for nothing": ([late(gain_ms=0)], 0),
    "of a group": ([late(delays=[3, 5])], 20),
    "in a phase": ([late(category="compute", phase="forward")], 20),
    "of a known cause": ([late(category="data_loading", loading=LOADING)], 20),
    "in two ways": ([late(gain_ms=29, also=OTHERWISE)], 20),
    "in every second": ([late(every=2, steps_late=10, gain_ms=10)], 10),
    "in every third, and otherwise": ([late(every=3, steps_late=6, gain_ms=6, also=OTHERWISE)], 6),
    "in every fifth": ([late(every=5, steps_late=4, gain_ms=4)], 4),
    "without order": ([late(2, steps_late=8, gain_ms=8)], 8),
    "two": ([late(1, gain_ms=0.1), late(3, gain_ms=0.1)], 20),
    "two of their groups": ([late(0, delays=[1]), late(3, gain_ms=15, delays=[2])], 35),
    "two with known causes": ([late(0), late(category="data_loading", loading=LOADING)], 40),
    "two of different periods": ([late(2, 60, 13, every=3, steps_late=6), late(1, 40, 13, every=2, steps_late=10)], 33),
    "in turns": ([in_turns(1), in_turns(0)], 20),
    "in turns for several": ([in_turns(3, 1, 13), in_turns(1, 1, 7)], 20),
    "four in turns for several": ([in_turns(rank, 1, 5) for rank in range(4)], 20),
    "five in turns for several": ([in_turns(rank, 1, 4) for rank in range(5)], 20),
    "in turns in each of two stages": ([in_turns(rank) for rank in range(4)], 20),
    "in turns beside another": ([in_turns(0), in_turns(1), late(4, 24)], 24),
    "thirty": ([late(rank, gain_ms=0) for rank in range(30)], 20),
}
ONCE: dict[str, dict[str, Any]] = {
    "one": {},
    "of two": {"with_ranks": [3], "category": None},
    "first": {"is_first": True},
    "first of all": {"step": 0, "is_first": True},
}


def test_sentences_are_as_recorded(golden: Callable[[str, str], None]) -> None:
    lines = [f"{name}: {stragglers_sentence(rows, gain * MS)}" for name, (rows, gain) in SEVERAL.items()]
    for category in ("overhead", "data_loading"):
        for profiler_ms in (9, 11):
            row = late(category=category)
            lines.append(f"profiler, {profiler_ms} ms: {stragglers_sentence([row], 20 * MS, profiler_ms * MS)}")
    for name, other in ONCE.items():
        values: dict[str, Any] = {"rank": 1, "step": 7, "category": "overhead", "lag_ns": 60 * MS}
        row_once = OneOffStraggler(**values | {"category_ns": 58 * MS} | other)
        lines.append(f"once, {name}: {one_off_place(row_once)} ({one_off_cause(row_once)})")
    golden("\n".join(lines), "wording/late_ranks.txt")
