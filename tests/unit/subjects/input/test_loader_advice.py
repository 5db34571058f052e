"""Advice on slow input: what cannot help in the run is not advised."""

from typing import Any

import pytest
from msgspec.structs import replace

from perfkit.pipeline.words import find_insights
from perfkit.records.per_rank.loading import RankLoading, WaitCause, WaitNs, WorkerFetches
from tests.support.reports.report_builders import MS, make_loading
from tests.support.reports.scaling_builders import make_hosts, make_ranks, make_scaled
from tests.unit.pipeline.test_insights import QUIET


def make_worker(number: int, cpu_ms: int) -> WorkerFetches:
    return WorkerFetches(
        worker=number, batches=4, median_ns=50 * MS, get_ns=200 * MS, cpu_ns=cpu_ms * MS, collate_ns=4 * MS
    )


def advice(cause: WaitCause, *, workers: int, cores: int | None, cpu_ms: int = 200, **loads: Any) -> str:
    """Return what is advised to two ranks that wait for this, with so many workers each."""
    fetches = [make_worker(number, cpu_ms) for number in range(workers)] or [make_worker(-1, cpu_ms)]
    loading = RankLoading(waits_ns=WaitNs(**{cause: 120 * MS}), workers=fetches)
    parts = QUIET | {"compute": 60 * MS, "data_loading": 30 * MS}
    ranks = [replace(rank, loading=loading) for rank in make_ranks([parts, parts])]
    run = make_scaled(
        2,
        100,
        ranks=ranks,
        cross_rank=None,
        efficiency=None,
        dimensions=None,
        hosts=make_hosts(2, cores=cores),
        data_loading=make_loading(median_ns=30 * MS, **loads),
    )
    (one,) = [insight for insight in find_insights([run], None).insights if insight.rule == "input"]
    return one.recommendation


@pytest.mark.parametrize(("cores", "more"), [(64, True), (None, True), (6, True), (5, False), (2, False)])
@pytest.mark.parametrize("cause", ["transforming", "workers_busy"])
def test_more_workers_are_advised_where_cores_are_free(cause: WaitCause, cores: int | None, more: bool) -> None:
    """Two ranks with two workers each are six processes."""
    assert ("more) workers" in (said := advice(cause, workers=2, cores=cores)) or "more workers" in said) is more


def test_workers_that_wait_need_no_cores() -> None:
    assert advice("workers_busy", workers=2, cores=2, cpu_ms=20).startswith("use more workers")


def test_what_helps_workers_that_start_or_wait() -> None:
    assert advice("starting", workers=2, cores=2).endswith("persistent_workers=True")
    assert "use more workers" in advice("waiting", workers=1, cores=2, cpu_ms=0)
    assert "storage" not in advice("waiting", workers=1, cores=2, cpu_ms=0)


@pytest.mark.parametrize("cause", ["reading", "workers_busy"])
def test_storage_that_is_used_up_is_helped_by_nothing_else(cause: WaitCause) -> None:
    assert advice(cause, workers=2, cores=64, cpu_ms=20, file_share=0.9).startswith("use faster storage")
    assert advice("transforming", workers=2, cores=64, file_share=0.9).startswith("read whole batches at once")


def test_a_process_without_a_core_takes_long_to_receive_batches() -> None:
    assert advice("transfer", workers=2, cores=64).startswith("return fewer or smaller tensors")
    assert advice("transfer", workers=2, cores=2).startswith("leave a core to the process that trains")


def test_workers_that_a_run_has_are_not_advised() -> None:
    assert "with more workers" in advice("reading", workers=2, cores=64)
    assert "ahead with workers (num_workers)" in advice("reading", workers=0, cores=2)
