"""Idle time in reports: tables, data frames, CSV and JSON."""

import io

import msgspec

from perfkit.records.report import Report
from perfkit.records.run import RunReport
from perfkit.report import build_document
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


def test_no_table_of_nothing_or_too_little() -> None:
    assert not shown(make_run())
    assert not shown(make_run(ranks=[idle_rank(row("host_work", "f", 0.3))]))


def test_json_has_the_causes_of_each_step_and_reads_back() -> None:
    stream = io.StringIO()
    report = make_report(two_ranks())
    json_export.write(report, stream, top=1)
    read = msgspec.json.decode(stream.getvalue(), type=Report)
    assert read == report
    for step in read.runs[0].ranks[0].steps:
        assert sum(msgspec.structs.astuple(step.idle_ns)) == step.exposed_ns.overhead
