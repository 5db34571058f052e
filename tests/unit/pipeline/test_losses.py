"""Losses as facts, case by case; and what they are in words, in one file to be read (`tests/golden/wording`)."""

from collections.abc import Callable, Mapping
from typing import Any, Final

import pytest

from perfkit.engine.losses.loss import Loss
from perfkit.pipeline.losses import find_losses
from perfkit.pipeline.words import find_insights
from perfkit.records.cross_rank import EarlyRank, OneOffStraggler
from perfkit.records.facts import Fact
from perfkit.records.per_run.pauses import RankPauses
from perfkit.records.run import RunReport
from perfkit.subjects.scaling.summary import scaling
from tests.support.reports.report_builders import MS, make_across, make_efficiency, make_foreign_run, make_loading
from tests.support.reports.scaling_builders import make_hosts
from tests.support.traces.idle_builders import idle_rank, row
from tests.unit.pipeline.test_insights import make_straggler, run_of, waiting_run

SAVE: Final = RankPauses(
    phase="checkpoint", rank=1, count=4, total_ns=400 * MS, max_ns=100 * MS, caller="train.py:14 save", steps=16
)
ONCE: Final = OneOffStraggler(rank=0, step=7, lag_ns=120 * MS, category="compute", category_ns=120 * MS)
UNKNOWN: Final = make_efficiency(wait_ns=0, transfer_ns=160 * MS, unmatched_ns=100 * MS)
COMMUNICATES: Final = {"compute": 60 * MS, "communication": 15 * MS}


def late(*ranks: int, gain_ms: int = 20, **changes: Any) -> RunReport:
    """Two ranks, of which some are late."""
    rows = [make_straggler(rank, **changes) for rank in ranks]
    return waiting_run(128, 32, cross_rank=make_across(stragglers=rows, stragglers_gain_ns=gain_ms * MS))


def idle(*causes: Any) -> RunReport:
    return make_foreign_run(ranks=[idle_rank(*causes)], world_size=1)


CASES: Final[dict[str, Callable[[], RunReport]]] = {
    "straggler": lambda: waiting_run(128, 32),
    "straggler of a part": lambda: waiting_run(128, 32, world_size=64),
    "straggler in a phase": lambda: late(1, phase="forward", category="compute"),
    "straggler in every third step": lambda: late(1, every=3, category="overhead"),
    "stragglers in turns": lambda: late(
        0, 1, every=2, in_turns=True, one_at_a_time=True, steps_late=2, category="overhead"
    ),
    "straggler that costs little": lambda: late(1, gain_ms=6, gain_ns=6 * MS),
    "none is late": lambda: waiting_run(128, 32, slow=False),
    "single delay": lambda: waiting_run(128, 32, cross_rank=make_across(one_off_stragglers=[ONCE])),
    "early rank": lambda: waiting_run(
        128, 32, cross_rank=make_across(early_ranks=[EarlyRank(rank=0, lead_ns=30 * MS)])
    ),
    "checkpoint besides": lambda: waiting_run(32, 128, slow=False, pauses=[SAVE]),
    "transfer": lambda: waiting_run(32, 128),
    "transfer without overlap": lambda: waiting_run(32, 128, config={"overlap": False}),
    "unknown part": lambda: waiting_run(32, 128, slow=False, efficiency=UNKNOWN),
    "missing ranks": lambda: waiting_run(32, 128, slow=False, world_size=128),
    "shared cores": lambda: waiting_run(128, 32, hosts=make_hosts(2, cores=4, threads=4), config={"threads": None}),
    "per-sample reads": lambda: waiting_run(128, 32, config={"read": "per-sample", "num_workers": 2}),
    "input near its file's bandwidth": lambda: run_of(
        {"compute": 60 * MS, "data_loading": 37 * MS}, data_loading=make_loading(median_ns=37 * MS, file_share=0.6)
    ),
    "host waits for the device": lambda: idle(row("synchronisation", "aten::item", 20, "train.py(5): log", count=40)),
    "host launches": lambda: idle(row("launch_bound", "aten::add", 20, "Optimizer.step#AdamW.step", count=40)),
    "host works": lambda: idle(row("host_work", "<built-in function collect>", 20, "train.py(20): train")),
    "copies": lambda: run_of({"compute": 60 * MS, "memcpy": 30 * MS}),
}


def losses(run: RunReport) -> dict[str, Loss]:
    """The losses of a run, by rule."""
    return {one.rule: one.loss for one in find_losses([run], scaling([run])).ranked}


def names(facts: tuple[Fact, ...]) -> list[str]:
    return [one.name for one in facts]


@pytest.mark.parametrize(
    ("case", "rule", "expected"),
    [
        ("straggler", "waiting", {"ranks": (1,), "per_step_ns": 20 * MS, "change": "rank1=healthy"}),
        ("straggler of a part", "waiting", {"cause": "straggler", "ranks": (1,), "change": None}),
        ("straggler in a phase", "waiting", {"ranks": (1,), "phase": "forward"}),
        ("stragglers in turns", "waiting", {"ranks": (0, 1), "change": "rank0=healthy rank1=healthy"}),
        ("straggler that costs little", "waiting", {"cause": "straggler", "per_step_ns": 6 * MS}),
        # Rank 0 communicates for 30 ms, of which 4 are data transfer: more than the mean over ranks could be saved.
        ("none is late", "waiting", {"cause": "waiting", "ranks": (), "per_step_ns": 26 * MS}),
        ("single delay", "waiting", {"cause": "one_off_straggler", "ranks": (0,), "steps": (7,)}),
        ("early rank", "waiting", {"cause": "early_ranks", "ranks": (0,)}),
        ("checkpoint besides", "pauses", {"cause": "checkpoint", "ranks": (1,), "code": "train.py:14 save"}),
        ("transfer", "transfer", {"code": "all_reduce", "per_step_ns": pytest.approx(16 * MS)}),
        ("unknown part", "transfer", {"cause": "communication", "per_step_ns": pytest.approx(20 * MS)}),
        ("missing ranks", "transfer", {"cause": "communication", "only_finds_out": True}),
        ("shared cores", "oversubscribed", {"per_step_ns": None}),
        ("host waits for the device", "host", {"cause": "synchronisation", "code": "aten::item"}),
        ("host works", "host", {"cause": "host_work", "code": "<built-in function collect>"}),
        ("copies", "copies", {"cause": "copies", "per_step_ns": 30 * MS}),
    ],
)
def test_a_loss_says_what_costs_time_where_and_how_much(case: str, rule: str, expected: Mapping[str, object]) -> None:
    found = losses(CASES[case]())[rule]
    assert {name: getattr(found, name) for name in expected} == expected


@pytest.mark.parametrize(
    ("case", "rule", "remedy"),
    [
        ("straggler", "waiting", ["use_workers"]),
        ("straggler in every third step", "waiting", ["partly_overhead"]),
        ("stragglers in turns", "waiting", ["find_turns"]),
        ("single delay", "waiting", ["partly_compute"]),
        ("transfer without overlap", "transfer", ["overlap"]),
        ("missing ranks", "transfer", ["analyse_all"]),
        ("shared cores", "oversubscribed", ["use_threads"]),
        ("per-sample reads", "waiting", ["batched_or_more_workers"]),
        ("input near its file's bandwidth", "input", ["use_workers", "or_faster_storage"]),
        ("host launches", "host", ["fused_optimizer"]),
        ("host works", "host", ["collect_garbage"]),
    ],
)
def test_a_loss_has_a_remedy(case: str, rule: str, remedy: list[str]) -> None:
    assert names(losses(CASES[case]())[rule].remedy) == remedy


def test_the_losses_in_words(golden: Callable[[str, str], None]) -> None:
    """Each sentence once, under the first case that has it."""
    lines: dict[str, None] = {}
    for case, make in CASES.items():
        lines[f"\n# {case}"] = None
        for one in find_insights([make()], None).insights:
            lines[f"{one.rule}: {one.sentence}\n  -> {one.recommendation}"] = None
    golden("\n".join(lines).lstrip(), "wording/insights.txt")
