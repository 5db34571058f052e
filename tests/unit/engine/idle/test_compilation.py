"""Recompilation within recorded steps: it is no compute on any device, and what is said of it names it."""

from pathlib import Path

import pytest

import perfkit
from perfkit.records.report import Report
from perfkit.records.run import RunReport
from tests.support.traces.trace_builder import TraceBuilder

STEP_US, COMPUTE_US, COMPILE_US = 1000, 900, 9000
COMPILING = {3, 6, 9}


def rank(number: int, compiling: set[int], steps: int = 12) -> TraceBuilder:
    """A rank of two that computes and, in some steps, compiles before; then it reduces until both have done so."""
    builder, now = TraceBuilder(number, 2, backend="gloo"), 0
    for step in range(steps):
        begin, anyone = now, bool(COMPILING & {step})
        if step in compiling:
            builder.op("_compile.compile_inner (dynamo_timed)", now, COMPILE_US)
            builder.op("inductor_compile", now + 100, COMPILE_US - 200).op("aten::mm", now + 200, COMPILE_US - 400)
            now += COMPILE_US
        builder.op("aten::mm", now, COMPUTE_US)
        end = begin + STEP_US + COMPILE_US * anyone
        builder.gloo("all_reduce", now + COMPUTE_US, end - now - COMPUTE_US)
        builder.step(step, begin, end - begin)
        now = end
    return builder


def report_of(folder: Path, *compiling: set[int]) -> tuple[Report, RunReport]:
    for number, steps in enumerate(compiling):
        rank(number, steps).write(folder / f"rank{number}.json")
    report = perfkit.analyze(folder)
    (run,) = report.runs
    return report, run


def test_what_a_compiler_runs_is_no_compute_on_the_cpu(tmp_path: Path) -> None:
    _, run = report_of(tmp_path, COMPILING, COMPILING)
    for own in run.ranks:
        assert {step.exposed_ns.compute for step in own.steps} == {COMPUTE_US * 1000}
        assert [step.idle_ns.compilation // 1000 for step in own.steps if step.step in COMPILING] == [COMPILE_US] * 3
        listed = {(row.name, row.category): row.total_ns // 1000 for row in own.operators}
        assert listed["aten::mm", "compute"] == 12 * COMPUTE_US
        assert listed["aten::mm", "overhead"] == 3 * (COMPILE_US - 400)


def test_the_ledger_the_advice_and_a_finding_have_it(tmp_path: Path) -> None:
    report, run = report_of(tmp_path, COMPILING, COMPILING)
    assert run.ledger is not None
    row = run.ledger.losses[0]
    assert row.cause == "compilation"
    assert row.ns == pytest.approx(3 * COMPILE_US * 1000 / 12, rel=0.01)
    (message,) = (one.message for one in run.findings if one.code == "compilation_recorded")
    assert message.startswith("code was compiled or loaded during 3 recorded steps (3, 6, 9), for up to 9.00 ms (in ")
    assert "TORCH_LOGS=recompiles" in report.insights[0].recommendation


def test_a_rank_that_alone_compiles_again_does_not_compute_more(tmp_path: Path) -> None:
    report, run = report_of(tmp_path, set(), COMPILING)
    assert run.cross_rank is not None
    late: list[tuple[int, str | None]] = [(one.rank, one.category) for one in run.cross_rank.stragglers]
    once: list[tuple[int, str | None]] = [(one.rank, one.category) for one in run.cross_rank.one_off_stragglers]
    assert set(late + once) == {(1, "overhead")}
    (advice,) = (one.recommendation for one in report.insights if one.rule == "waiting")
    assert advice.startswith("find what is compiled or loaded in ")
    assert "recompile" not in advice.partition(" (")[0]  # it may be a module that is loaded


def test_a_trace_without_steps_beside_others_is_not_named(tmp_path: Path) -> None:
    rank(0, COMPILING).write(tmp_path / "rank0.json")
    TraceBuilder(1, 2, backend="gloo").op("compile_fx_inner", 0, 10 * COMPILE_US).op(
        "aten::mm", 10 * COMPILE_US, 9
    ).write(tmp_path / "rank1.json")
    (run,) = perfkit.analyze(tmp_path).runs
    (message,) = (one.message for one in run.findings if one.code == "compilation_recorded")
    assert "(in step 3 on rank 0)" in message


def test_nothing_is_said_where_nothing_compiles(tmp_path: Path) -> None:
    _, run = report_of(tmp_path, set(), set())
    assert "compilation_recorded" not in {one.code for one in run.findings}
