"""Real pipelines of torch in scripts that know nothing of perfkit, with stages that sleep for known times.

With one stage per rank nobody annotates micro-batches; with several torch does.

As for pipelines of perfkit's own, a run on a busy machine that missed is tried twice more.
"""

import sys
from pathlib import Path

import pytest

import perfkit
from perfkit.records.run import RunReport
from tests.support.processes import plain_pipeline
from tests.support.processes.launching import execute, in_real_time

pytestmark = [pytest.mark.slow, pytest.mark.timing, pytest.mark.flaky(reruns=2)]

POINTS = 0.03
RANKS, BATCHES = 4, 4
SCRIPT = plain_pipeline.__file__


def check(run: RunReport, schedule: str) -> None:
    (found,) = run.pipelines
    assert (found.schedule, found.stages, found.micro_batches, found.reason) == (schedule, RANKS, BATCHES, None)
    assert [(rank.rank, rank.stages) for rank in found.ranks] == [(rank, [rank]) for rank in range(RANKS)]
    formula = (RANKS - 1) / (BATCHES + RANKS - 1)
    assert found.bubble_share == pytest.approx(formula, abs=POINTS)
    assert found.ideal_share == pytest.approx(formula, abs=POINTS)
    for stage in found.stage_times:
        assert stage.forward_ns == pytest.approx(plain_pipeline.FORWARD_S * 1e9, rel=0.15)
        assert stage.backward_ns == pytest.approx(plain_pipeline.BACKWARD_S * 1e9, rel=0.15)
    messages = {row.dimension for rank in run.ranks for row in rank.collectives if row.operator in ("send", "recv")}
    assert messages == {"pp"}


def test_traces_of_torchs_own_profiler(tmp_path: Path) -> None:
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(RANKS)]
    done = execute([*in_real_time(), *launch, SCRIPT, str(BATCHES), "gpipe,1f1b", str(tmp_path)])
    assert done.returncode == 0, done.stderr
    for schedule in ("gpipe", "1f1b"):
        (run,) = perfkit.analyze(tmp_path / schedule).runs
        check(run, schedule)


def test_schedules_with_several_stages_per_rank(tmp_path: Path) -> None:
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    done = execute([*in_real_time(), *launch, SCRIPT, str(BATCHES), "interleaved,zero-bubble,looped", str(tmp_path)])
    assert done.returncode == 0, done.stderr
    for schedule, name in (("interleaved", "interleaved"), ("zero-bubble", "zero-bubble"), ("looped", None)):
        (run,) = perfkit.analyze(tmp_path / schedule).runs
        (found,) = run.pipelines
        assert (found.schedule, found.stages, found.micro_batches, found.reason) == (name, 4, BATCHES, None)
        assert [rank.stages for rank in found.ranks] == [[0, 2], [1, 3]]
        assert found.heavy is None
