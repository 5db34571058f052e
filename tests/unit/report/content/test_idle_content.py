"""Idle time in reports: tables, data frames, CSV and JSON."""

import csv
import io

import msgspec

from perfkit.records.report import Report
from perfkit.records.run import RunReport
from perfkit.report import build_document, reporter
from perfkit.report.exporters import json_export
from tests.support.reports.report_builders import make_report, make_run
from tests.support.traces.idle_builders import idle_rank, row


def shown(run: RunReport, top: int = 10) -> dict[str, list[list[str]]]:
    """Return the cells of each table about idle time, by the beginning of its title."""
    (section,) = build_document(run, top).sections
    tables = {table.title.partition(" (")[0]: table for table in section.tables}
    wanted = ("Idle time by cause", "What ran in idle time")
    return {name: [[cell.text for cell in one] for one in tables[name].rows] for name in wanted if name in tables}


def two_ranks() -> RunReport:
    item = row("synchronisation", "aten::item", 20, "train.py(5): log", count=40)
    ranks = [idle_rank(item, row("host_work", "forward", 5, count=2), rank=0), idle_rank(item, rank=1, kernels=100)]
    return make_run(ranks=ranks)


def test_tables_are_means_over_steps_and_ranks() -> None:
    assert shown(two_ranks()) == {
        "Idle time by cause": [
            ["waiting for the device", "20.0 ms", "20.0 %", "10", "2.00 ms"],
            ["host work", "2.50 ms", "2.5 %", "2 in 8", "10.0 ms"],
        ],
        "What ran in idle time": [
            ["aten::item", "train.py(5): log", "waiting for the device", "10", "20.0 ms", "20.0 %"],
            ["forward", "–", "host work", "2 in 8", "2.50 ms", "2.5 %"],
        ],
    }
    assert len(shown(two_ranks(), top=1)["What ran in idle time"]) == 1


def test_no_table_of_nothing_or_too_little() -> None:
    assert not shown(make_run())
    assert not shown(make_run(ranks=[idle_rank(row("host_work", "f", 0.3))]))


def test_names_are_escaped() -> None:
    text = str(shown(make_run(ranks=[idle_rank(row("host_work", "a\x1b[31m", 20, "b\x1b"))])))
    assert "\x1b" not in text


def test_csv_and_data_frame_have_a_row_per_rank_and_cause() -> None:
    report = make_report(two_ranks(), make_run("without"))
    stream = io.StringIO()
    reporter(Report, "idle").write(report, stream, top=1)
    rows = list(csv.DictReader(io.StringIO(stream.getvalue())))
    assert [(one["rank"], one["cause"], one["detail"], one["context"], one["total_ns"]) for one in rows] == [
        ("0", "synchronisation", "aten::item", "train.py(5): log", "80000000"),
        ("0", "host_work", "forward", "", "20000000"),
        ("1", "synchronisation", "aten::item", "train.py(5): log", "80000000"),
    ]
    frame = report.tables().idle
    assert frame["total_ns"].tolist() == [80_000_000, 20_000_000, 80_000_000]
    assert frame["total_ns"].dtype == "int64"


def test_json_has_the_causes_of_each_step_and_reads_back() -> None:
    stream = io.StringIO()
    report = make_report(two_ranks())
    json_export.write(report, stream, top=1)
    read = msgspec.json.decode(stream.getvalue(), type=Report)
    assert read == report
    for step in read.runs[0].ranks[0].steps:
        assert sum(msgspec.structs.astuple(step.idle_ns)) == step.exposed_ns.overhead
