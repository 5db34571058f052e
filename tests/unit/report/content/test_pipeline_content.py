"""The tables of a pipeline."""

from msgspec.structs import replace

from perfkit.records.per_run.pipeline import HeavyStage, StageExcess
from tests.support.reports.report_builders import make_run
from tests.support.reports.tables import tables_of
from tests.unit.subjects.pipelines.test_losses import make_pipeline


def test_a_heavy_stage_is_marked() -> None:
    heavy = HeavyStage(stage=2, rank=2, excess=0.3, gain_ns=5e6, layer_move=None)
    _, stages = tables_of(make_run(pipelines=[make_pipeline(heavy=heavy)]), "pipelines")
    assert [row[5].tone for row in stages.rows] == ["plain", "plain", "warning", "plain"]
    assert (stages.remark or "").startswith("stage 2 takes 1.3 times as long")
    both = replace(heavy, also=[StageExcess(stage=0, rank=0, excess=0.2)])
    _, stages = tables_of(make_run(pipelines=[make_pipeline(heavy=both)]), "pipelines")
    assert [row[5].tone for row in stages.rows] == ["warning", "plain", "warning", "plain"]
    assert (stages.remark or "").startswith("stages 0, 2 take 1.2 to 1.3 times as long")


def test_an_unsplit_bubble_says_why() -> None:
    pipeline = make_pipeline(43, None, reason="traces of 2 of 4 ranks", schedule=None)
    bubbles, _ = tables_of(make_run(pipelines=[pipeline, make_pipeline()]), "pipelines")
    assert bubbles.title.startswith("Pipeline: unknown schedule")
    assert "not split: traces of 2 of 4 ranks" in (bubbles.remark or "")
    assert "one more pipeline has a smaller bubble" in (bubbles.remark or "")
    assert [cell.text for cell in bubbles.rows[0]][4:7] == ["–", "–", "–"]


def test_ranks_with_many_stages_and_many_ranks_are_cut() -> None:
    one = make_pipeline().ranks[0]
    rows = [replace(one, rank=rank, stages=list(range(9))) for rank in range(40)]
    bubbles, _ = tables_of(make_run(pipelines=[make_pipeline(ranks=rows)]), "pipelines")
    assert len(bubbles.rows) == 16
    assert bubbles.rows[0][0].text == "0, 1, 2, 3, …"
    assert "24 more ranks" in (bubbles.remark or "")


def test_a_run_without_pipelines_has_no_such_table() -> None:
    assert tables_of(make_run(pipelines=[]), "pipelines") == []
