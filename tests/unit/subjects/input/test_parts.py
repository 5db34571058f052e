"""What ran while a step waited for its batch."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from perfkit.pipeline import analyze as pipeline
from perfkit.pipeline.losses import find_losses
from perfkit.pipeline.words import find_insights
from perfkit.records.per_rank.loading import RankLoading
from perfkit.records.run import RunReport
from tests.support.traces.samples import Stack, recorded
from tests.support.traces.trace_builder import BASE_NS, TraceBuilder

MAIN = ("train.py(1): <module>", 40)
ITEM = ("train.py(20): Images.__getitem__", 22, "colour_jitter")
LOOP = ("torch/utils/data/_utils/worker.py(244): _worker_loop", 374)
NEXT = "enumerate(DataLoader)#{}.__next__"
SINGLE, SEVERAL = "_SingleProcessDataLoaderIter", "_MultiProcessingDataLoaderIter"


def analyse(folder: Path, loader: str = SINGLE, **recorded_by: Any) -> RunReport:
    """Three steps of 20 ms, each of which loads for its first 10 ms."""
    builder = TraceBuilder(backend="gloo")
    for step in range(3):
        builder.step(step, 20_000 * step, 20_000).data_loading(20_000 * step, 10_000, name=NEXT.format(loader))
        builder.op("aten::mm", 20_000 * step + 10_000, 10_000)
    builder.header(perfkit=msgspec.to_builtins(recorded_by)).write(folder / "rank0.json")
    (run,) = pipeline.analyze(folder, cache=False).runs
    return run


def loading(run: RunReport) -> RankLoading:
    found = run.ranks[0].loading
    assert found is not None
    return found


def sampled(stack: Stack, ran: int = 1000, waits: int = 0, worker: int = -1) -> Any:
    return recorded([(1000 * k, stack, ran, waits) for k in range(1, 60)], worker=worker)


def fetches(worker: int = -1, cpu: int = 9_000) -> list[list[int]]:
    """Batches of 9 ms, all of them for samples."""
    return [[worker, BASE_NS + (20_000 * k + 500) * 1000, 9_000_000, cpu * 1000, 0, 8, -1, 0] for k in range(3)]


@pytest.mark.parametrize(
    ("frames", "expected"),
    [
        ([("train.py(7): colour_jitter", 9, "min")], "transforming"),
        ([("train.py(7): load", 9, "open")], "reading"),
        ([("train.py(7): load", 9, "file.read")], "reading"),
        ([("pathlib.py(1019): Path.read_bytes", 1050, "f.read"), ("train.py(7): load", 9, "p.read_bytes")], "reading"),
        ([("h5py/_hl/dataset.py(749): Dataset.__getitem__", 756), ("train.py(7): load", 9)], "reading"),
        ([("PIL/ImageFile.py(200): ImageFile.load", 230), ("train.py(7): load", 9)], "decoding"),
        ([("train.py(7): load", 9, "cv2.imdecode")], "decoding"),
        ([("train.py(7): load", 9, "json.loads")], "decoding"),
        ([("train.py(7): pad", 9), ("perfkit/record/recording/loader_fetches.py(1): timed_collate", 2)], "collating"),
    ],
)
def test_what_a_function_does(tmp_path: Path, frames: list[tuple[str, int]], expected: str) -> None:
    run = analyse(tmp_path, fetches=fetches(), samples=sampled([*frames, ITEM, MAIN]))
    (part,) = loading(run).parts
    assert (part.activity, part.code and part.code.line) == (expected, 9)
    assert part.ns == pytest.approx(30_000_000, rel=0.02)


def test_what_does_not_run_waits_for_files_a_core_or_something_else(tmp_path: Path) -> None:
    reads: Stack = [("train.py(7): load", 9, "file.read"), ITEM, MAIN]
    sleeps: Stack = [("train.py(7): load", 9, "time.sleep"), ITEM, MAIN]
    for stack, waits, expected in ((reads, 1, "reading"), (sleeps, 1, "waiting"), (sleeps, 0, "core")):
        run = analyse(tmp_path, fetches=fetches(cpu=1_000), samples=sampled(stack, 10, waits))
        (part,), waited = loading(run).parts, loading(run).waits_ns
        assert part.activity == expected
        assert {name for name in ("reading", "waiting", "core") if getattr(waited, name)} == {expected}
        assert sum(msgspec.structs.astuple(waited)) == 30_000_000


def test_the_loss_names_the_line_and_no_storage_where_nothing_is_read(tmp_path: Path) -> None:
    stack: Stack = [("train.py(7): colour_jitter", 9, "time.sleep"), ITEM, MAIN]
    run = analyse(tmp_path, fetches=fetches(cpu=1_000), samples=sampled(stack, 10, 1))
    (found,) = [one.loss for one in find_losses([run], None).ranked if one.rule == "input"]
    assert (found.cause, found.code) == ("waiting", "colour_jitter, train.py:9")
    (advice,) = [one for one in find_insights([run], None).insights if one.rule == "input"]
    assert "storage" not in advice.sentence + advice.recommendation


def test_a_loader_of_its_own_kind_is_divided_too(tmp_path: Path) -> None:
    (part,) = loading(analyse(tmp_path, samples=sampled([("train.py(7): get_batch", 9), MAIN]))).parts
    assert part.code is not None
    assert part.code.text == "get_batch, train.py:9"


def test_what_workers_do_stands_for_waiting_for_them(tmp_path: Path) -> None:
    waits: Stack = [("torch/utils/data/dataloader.py(1): _MultiProcessingDataLoaderIter._get_data", 2), MAIN]
    own: Stack = [("train.py(7): colour_jitter", 9, "min"), ("train.py(20): Images.__getitem__", 22), LOOP, MAIN]
    given = {"fetches": fetches(worker=0), "samples": sampled(waits, 10, 1)}
    (part,) = loading(analyse(tmp_path, SEVERAL, **given)).parts
    assert (part.activity, part.code) == ("workers", None)
    first, second = loading(analyse(tmp_path, SEVERAL, **given, worker_samples=[sampled(own, worker=0)])).parts
    assert (first.activity, first.code and first.code.text) == ("transforming", "colour_jitter, train.py:9")
    assert first.ns == 27_000_000
    assert second.activity == "workers"
