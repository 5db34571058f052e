"""Traces with damage of known size: records dropped, shifted, repeated, renumbered, merged, overrun; clocks moved.

Each mutation changes the events of a trace in place and returns by how much figures may change for it (us).
"""

import gzip
import json
import random
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from perfkit.engine.trace_context import TraceContext
from perfkit.records.common import CATEGORIES, Observation
from perfkit.trace.reader import read_trace

Event = dict[str, Any]
Document = dict[str, Any]
WORK: Final = ("kernel", "gpu_memcpy", "gpu_memset")


def work_of(events: Sequence[Event]) -> list[Event]:
    return [event for event in events if event.get("ph") == "X" and event.get("cat") in WORK]


def some(rng: random.Random, events: list[Event]) -> list[Event]:
    """Return one event, or up to one in twenty."""
    return rng.sample(events, rng.choice((1, 1, max(1, len(events) // 20))))


def length(events: Sequence[Event]) -> float:
    return sum(float(event["dur"]) for event in events)


def distance(rng: random.Random) -> float:
    return round(10 ** rng.uniform(1, 7), 3)


def drop(rng: random.Random, events: list[Event]) -> float:
    gone = some(rng, work_of(events))
    for event in gone:
        events.remove(event)
    return length(gone)


def drop_first(rng: random.Random, events: list[Event]) -> float:
    work = sorted(work_of(events), key=lambda event: float(event["ts"]))
    gone = work[: max(1, int(len(work) * rng.uniform(0, 0.5)))]
    ids = set(map(id, gone))
    events[:] = [event for event in events if id(event) not in ids]
    return length(gone)


def shift(rng: random.Random, events: list[Event]) -> float:
    moved, by = some(rng, work_of(events)), distance(rng) * rng.choice((-1, 1))
    for event in moved:
        event["ts"] = float(event["ts"]) + by
    return length(moved)


def shift_one_late(rng: random.Random, events: list[Event]) -> float:
    moved = rng.choice(work_of(events))
    moved["ts"] = float(moved["ts"]) + 1e7
    return length([moved])


def duplicate(rng: random.Random, events: list[Event]) -> float:
    again = some(rng, work_of(events))
    events += [{**event} for event in again]
    return 0.0


def renumber(rng: random.Random, events: list[Event]) -> float:
    work = [event for event in work_of(events) if "correlation" in event.get("args", {})]
    one, other = rng.sample(work, 2)
    numbers = one["args"]["correlation"], other["args"]["correlation"]
    one["args"], other["args"] = (
        {**one["args"], "correlation": numbers[1]},
        {**other["args"], "correlation": numbers[0]},
    )
    return length([one, other])


def overrun(rng: random.Random, events: list[Event]) -> float:
    """Let one activity run over at least the next two of its stream."""
    streams: dict[Any, list[Event]] = {}
    for event in work_of(events):
        streams.setdefault((event["pid"], event["tid"]), []).append(event)
    longest = max(streams.values(), key=len)
    stream = sorted(longest, key=lambda event: float(event["ts"]))
    at = rng.randrange(max(1, len(stream) - 3))
    over = stream[min(len(stream) - 1, rng.randint(at + 2, len(stream)))]
    long, before = stream[at], float(stream[at]["dur"])
    long["dur"] = round(float(over["ts"]) + float(over["dur"]) - float(long["ts"]) + 1, 3)
    following = float(stream[min(at + 1, len(stream) - 1)]["ts"])
    return max(before, following - float(long["ts"]))


def until(events: Sequence[Event]) -> float | None:
    """Return when the profiler stopped to record; None for a trace that does not have it (before kineto wrote it)."""
    return next((float(event["ts"]) for event in events if event.get("name") == "Record Window End"), None)


def outlast(rng: random.Random, events: list[Event]) -> float:
    """Let the last activity, or the last step, end long after the recording, or begin then."""
    steps = [event for event in events if event.get("cat") != "gpu_user_annotation" and _is_step(event)]
    last = max(rng.choice((work_of(events), steps or work_of(events))), key=lambda event: float(event["ts"]))
    recorded, start, before = until(events), float(last["ts"]), float(last["dur"])
    if rng.random() < 0.5 and last.get("cat") in WORK:
        last["ts"] = start + 5e6
        return before if recorded else 6e6
    last["dur"] = 5e6
    return max(before, recorded - start) if recorded else 6e6


def one_correlation(rng: random.Random, events: list[Event]) -> float:
    """Give all launches and work the correlation of one."""
    for event in events:
        if "correlation" in event.get("args", {}):
            event["args"] = {**event["args"], "correlation": 5}
    return 0.0


def merge(rng: random.Random, events: list[Event]) -> float:
    """Add the device work of a second process: the same, somewhat later."""
    by = distance(rng) / 10
    events += [{**event, "ts": float(event["ts"]) + by} for event in work_of(events)]
    return 0.0


def clock(rng: random.Random, events: list[Event]) -> float:
    by = distance(rng) * rng.choice((-1, 1))
    for event in work_of(events):
        event["ts"] = float(event["ts"]) + by
    return 0.0


def drop_step(rng: random.Random, events: list[Event]) -> float:
    """Drop the annotation of a step that is neither the first nor the last."""
    steps = [event for event in events if event.get("cat") != "gpu_user_annotation" and _is_step(event)]
    steps.sort(key=lambda event: float(event["ts"]))
    if len(steps) > 2:
        events.remove(rng.choice(steps[1:-1]))
    return 0.0


def move_step(rng: random.Random, events: list[Event]) -> float:
    """Move the annotation of a step that lies between others."""
    steps = [event for event in events if event.get("cat") != "gpu_user_annotation" and _is_step(event)]
    steps.sort(key=lambda event: float(event["ts"]))
    if len(steps) > 2:
        moved = rng.choice(steps[1:-1])
        by = rng.choice((-1, 1)) * rng.uniform(0.1, 0.9) * min(float(step["dur"]) for step in steps)
        moved["ts"] = round(float(moved["ts"]) + by, 3)
    return 0.0


def duplicate_later(rng: random.Random, events: list[Event]) -> float:
    """Add up to a quarter of the operators, as they are, at another time as well."""
    operators = [event for event in events if event.get("ph") == "X" and event.get("cat") == "cpu_op"]
    by = distance(rng) / 100
    again = rng.sample(operators, int(len(operators) * rng.uniform(0, 0.25)))
    events += [{**event, "ts": round(float(event["ts"]) + by, 3)} for event in again]
    return 0.0


def _is_step(event: Event) -> bool:
    return event.get("ph") == "X" and str(event.get("name")).startswith("ProfilerStep#")


def shift_launch(rng: random.Random, events: list[Event]) -> float:
    work = {event["args"]["correlation"]: event for event in work_of(events) if "correlation" in event.get("args", {})}
    calls = [event for event in events if event.get("ph") == "X" and event.get("cat") not in WORK]
    calls = [event for event in calls if event.get("args", {}).get("correlation") in work]
    moved, by = some(rng, calls), distance(rng) * rng.choice((-1, 1))
    for event in moved:
        event["ts"] = float(event["ts"]) + by
    return length([work[event["args"]["correlation"]] for event in moved])


def host_of(events: Sequence[Event]) -> list[Event]:
    """Return the operators, annotations and calls of the host."""
    kinds = ("cpu_op", "Operator", "user_annotation", "cuda_runtime", "hip_runtime", "cuda_driver", "runtime")
    return [event for event in events if event.get("ph") == "X" and event.get("cat") in kinds]


def duplicate_host(rng: random.Random, events: list[Event]) -> float:
    own = host_of(events)
    events += [{**event} for event in rng.sample(own, rng.randint(1, len(own)))]
    return 0.0


def overrun_host(rng: random.Random, events: list[Event]) -> float:
    """Let an operator or call run on into the middle of a later one of its thread."""
    own = [event for event in host_of(events) if event["cat"] != "user_annotation"]
    by_thread: dict[Any, list[Event]] = {}
    for event in own:
        by_thread.setdefault((event["pid"], event["tid"]), []).append(event)
    thread = sorted(max((len(rows), number, rows) for number, rows in enumerate(by_thread.values()))[2], key=lambda event: float(event["ts"]))
    long = rng.choice(thread[: len(thread) // 2])
    until = float(long["ts"]) + float(long["dur"])
    over = [event for event in thread if float(event["ts"]) >= until and float(event["dur"]) > 6]
    if over:
        long["dur"] = round(float(over[0]["ts"]) + float(over[0]["dur"]) / 2 - float(long["ts"]), 3)
    return 0.0


def jitter(rng: random.Random, events: list[Event]) -> float:
    """Move events by up to a microsecond."""
    moved = 0.0
    for event in events:
        by = rng.uniform(-1, 1)
        event["ts"], moved = round(float(event["ts"]) + by, 3), moved + abs(by)
    return 2 * moved


MUTATIONS: Final[dict[str, Callable[[random.Random, list[Event]], float]]] = {
    "drop": drop,
    "drop first": drop_first,
    "shift": shift,
    "shift one late": shift_one_late,
    "duplicate": duplicate,
    "renumber": renumber,
    "overrun": overrun,
    "outlast": outlast,
    "one correlation": one_correlation,
    "merge": merge,
    "clock": clock,
    "drop a step": drop_step,
    "move a step": move_step,
    "duplicate operators later": duplicate_later,
    "shift launches": shift_launch,
}


class Figures(msgspec.Struct):
    """What a trace says: nanoseconds by step and category, and its findings."""

    steps: dict[int | None, dict[str, int]]
    findings: list[str]
    counts: dict[str, int]
    """Of operators, or kernels, and collectives by name."""


def read_document(path: Path) -> Document:
    document: Document = json.loads(gzip.decompress(path.read_bytes()))
    return document


def figures(document: Document, path: Path) -> Figures:
    path.write_bytes(msgspec.json.encode(document))
    context = TraceContext(read_trace(path), path.name)
    steps: dict[int | None, dict[str, int]] = {}
    for step in context.break_down(with_causes=False):
        steps[step.step] = {category: getattr(step.exposed_ns, category) for category in CATEGORIES}
        steps[step.step]["wall"] = step.wall_ns
    counts = Counter({row.name: row.count for row in context.operators})
    counts["collectives"] += len(context.collectives.start)
    return Figures(steps, [_said(one) for one in context.own_findings], counts)


def _said(one: Observation) -> str:
    """Return a finding's code, and its share in tenths: what was said of a tenth of the trace may be said of all."""
    return f"{one.code} {one.values.get('share', 0):.1f}"


def largest_change_ns(before: Figures, after: Figures) -> int:
    """Return by how much a sum over the steps that both have, or a step's wall time, differs at most."""
    common = before.steps.keys() & after.steps.keys()
    changes = [0]
    for name in (*CATEGORIES, "wall"):
        changes.append(abs(sum(after.steps[step][name] - before.steps[step][name] for step in common)))
    changes += [abs(after.steps[step]["wall"] - before.steps[step]["wall"]) for step in common]
    return max(changes)
