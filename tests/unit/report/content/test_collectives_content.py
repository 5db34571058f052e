"""Tables, sentences and the page of a benchmark of collectives."""

import io
from itertools import combinations
from pathlib import Path

import pytest
from msgspec.structs import replace

from perfkit.records.benchmark import CollectiveBenchmark, PairTest, PairTime, SlowLink
from perfkit.report import build_charts, build_document, reporter
from perfkit.tools.collectives.findings import find_problems
from tests.support.browser import Visit, chromium, needs_chromium
from tests.support.reports.collective_builders import ALL_REDUCE, benchmark

HOSTILE = "<b>\x1b[31m"
RECORD = benchmark({8: [1e5, 1.1e5, 1.2e5], 1 << 20: [1e6, 1.1e6, 1.2e6]})


def with_pairs(ranks: int, *slow: SlowLink) -> CollectiveBenchmark:
    every_two = combinations(range(ranks), 2)
    pairs = [PairTime(ranks=two, latency_ns=1e5, time_ns=1e6, bandwidth=4e9) for two in every_two]
    test = PairTest(
        small_bytes=8,
        large_bytes=1 << 22,
        passes=5,
        rounds=ranks - 1,
        pairs=pairs,
        slow=list(slow),
        latency_noise=0.02,
        bandwidth_noise=0.01,
    )
    record = benchmark({}, world_size=ranks, hosts=["host"] * ranks, cores=[None] * ranks, pairs=test)
    return replace(record, findings=find_problems(record))


def text(record: CollectiveBenchmark) -> str:
    stream = io.StringIO()
    reporter(CollectiveBenchmark, "rich").write(record, stream, top=10)
    return " ".join(stream.getvalue().split())


def test_the_table_fits_a_terminal_and_counts_bytes_exactly() -> None:
    stream = io.StringIO()
    reporter(CollectiveBenchmark, "rich").write(RECORD, stream, top=10)
    lines = stream.getvalue().splitlines()
    assert max(map(len, lines)) <= 80
    (row,) = [line for line in lines if line.lstrip().startswith("1,048,576")]
    assert row.split()[:3] == ["1,048,576", "262,144", "float32"]
    assert "953 MB/s" in row


def test_results_are_called_right_only_if_all_are() -> None:
    assert "all results are right (2 checked)" in text(RECORD)
    wrong = replace(RECORD, measurements=[RECORD.measurements[0], replace(RECORD.measurements[1], wrong=3)])
    wrong = replace(wrong, findings=find_problems(wrong))
    assert "right" not in text(wrong).partition("size:")[0]
    assert "3 elements are wrong" in text(wrong)
    assert "wrong_results" in [finding.code for finding in wrong.findings]


def test_a_barrier_alone_claims_no_result() -> None:
    barrier = replace(RECORD.measurements[0], bytes=0, elements=0, algbw=None, busbw=None, wrong=None)
    record = replace(RECORD, series=[replace(ALL_REDUCE, operator="barrier")], measurements=[barrier])
    assert "right" not in text(record).partition("size:")[0]
    assert build_charts(record).sections == [[]]


def test_pairs_are_a_matrix_and_of_many_ranks_a_list() -> None:
    assert "rank 3 4.00 GB/s 4.00 GB/s 4.00 GB/s –" in text(with_pairs(4))
    assert "none stands out from the noise" in text(with_pairs(4))
    assert "Pairs with the lowest bandwidth (4.19 MB each way), of 190" in text(with_pairs(20))


def test_what_is_slow_is_a_finding_that_names_it() -> None:
    slow = SlowLink(kind="pair", ranks=[0, 2], measure="bandwidth", ratio=4.04)
    (finding,) = with_pairs(4, slow).findings
    assert finding.message == "messages between ranks 0, 2 take 4.0 times as long as comparable ones (large messages)"
    assert "1 slow, see the findings" in text(with_pairs(4, slow))
    assert "none stands out" not in text(with_pairs(4, slow))
    host = SlowLink(kind="host", ranks=[0, 1], host=HOSTILE, measure="latency", ratio=2)
    (finding,) = with_pairs(4, host).findings
    assert "\x1b" not in finding.message


def test_few_repeats_are_a_finding() -> None:
    assert [one.code for one in find_problems(benchmark({8: [1e5, 1e5]}))] == ["too_few_repeats"]
    assert find_problems(RECORD) == []


def test_more_ranks_than_cores_are_a_finding_on_a_cpu() -> None:
    shared = replace(RECORD, cores=[1, 1])
    (finding,) = find_problems(shared)
    assert finding.message == "the 2 ranks on host share 1 core: times include waiting for a core"
    assert find_problems(replace(shared, hosts=["a", "b"])) == []
    assert find_problems(replace(shared, cores=[None, None])) == []
    assert find_problems(replace(shared, device="cuda")) == []


@pytest.mark.parametrize("name", ["rich", "markdown", "csv", "html", "json"])
def test_no_name_from_a_file_breaks_a_format(name: str) -> None:
    record = replace(RECORD, hosts=[HOSTILE] * 2, device_names=[HOSTILE], versions={HOSTILE: HOSTILE})
    stream = io.StringIO()
    reporter(CollectiveBenchmark, name).write(record, stream, top=10)
    assert "\x1b" not in stream.getvalue()
    if name == "html":
        assert "<b>" not in stream.getvalue().partition("<script>")[0]


@needs_chromium
@pytest.mark.slow
def test_the_page_draws_bandwidth_by_size_and_the_matrix_of_pairs(tmp_path: Path) -> None:
    record = replace(RECORD, world_size=4, hosts=["host"] * 4, pairs=with_pairs(4).pairs)
    assert [chart.title for chart in build_charts(record).sections[0]] == [
        "Bus bandwidth by size",
        "Bandwidth between two ranks",
    ]
    assert build_document(record, 10).title == "perfkit collectives"
    with (tmp_path / "page.html").open("w") as stream:
        reporter(CollectiveBenchmark, "html").write(record, stream, top=10)
    with chromium() as browser:
        visit = Visit(browser, tmp_path / "page.html")
        assert visit.draw_all() == 2
        assert visit.trouble == []
