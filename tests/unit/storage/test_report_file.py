"""A report that was written is read back, and anything else is one line."""

import io
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

import perfkit
from perfkit.errors import StoreError
from perfkit.records.report import REPORT_VERSION, Report
from perfkit.report import reporter
from perfkit.report.dataframes import dataframe
from perfkit.storage.report_file import _check_integers
from perfkit.tables.specification import Listing, data
from tests.support.reports.report_builders import make_report
from tests.support.reports.scaling_builders import make_scaling_report


def test_a_report_is_read_back_as_it_was(tmp_path: Path) -> None:
    report = make_scaling_report()
    file = tmp_path / "report.json"
    file.write_bytes(msgspec.json.encode(report))
    assert perfkit.load_report(file) == report
    assert perfkit.load_report(str(file)).tables().points.shape[0] > 0


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"{", "not a perfkit report: "),
        (b"\xff", "not a perfkit report: "),
        (b'{"schema_version": %d}' % REPORT_VERSION, "not a perfkit report: perfkit_version is missing"),
        (b'{"schema_version": 1, "runs": []}', f"written with schema version 1, this perfkit reads {REPORT_VERSION}"),
    ],
)
def test_what_is_not_a_report_is_one_line(tmp_path: Path, content: bytes, message: str) -> None:
    file = tmp_path / "report.json"
    file.write_bytes(content)
    with pytest.raises(StoreError) as raised:
        perfkit.load_report(file)
    assert str(raised.value).startswith(f"{file}: {message}")
    assert "\n" not in str(raised.value)


def test_a_report_without_runs_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "report.json"
    file.write_bytes(msgspec.json.encode(msgspec.structs.replace(make_report(), runs=[])))
    with pytest.raises(StoreError, match="not a perfkit report: it has no runs"):
        perfkit.load_report(file)


@pytest.mark.parametrize("number", [2**63, 2**64 - 1, -(2**63) - 1, 10**400])
def test_a_report_with_a_number_that_no_table_holds_is_refused(number: int, tmp_path: Path) -> None:
    file = tmp_path / "report.json"
    text = msgspec.json.encode(make_scaling_report()).decode()
    file.write_text(re.sub(r'"world_size":\d+', f'"world_size":{number}', text))
    with pytest.raises(StoreError, match="not a perfkit report: a number does not fit into a signed 64-bit integer"):
        perfkit.load_report(file)


@pytest.mark.parametrize("number", [2**63, 2**64, -(2**63) - 1])
def test_numbers_that_add_up_to_more_than_a_table_holds_are_one_line(number: int) -> None:
    with pytest.raises(StoreError, match="do not fit into signed 64-bit integers"):
        dataframe(make_report(), Listing(lambda _: [number, 1], [data("total_ns", int, lambda row: row)]))


def test_integers_are_checked_however_deeply_they_are_nested() -> None:
    """Some versions of Python decode what is nested more deeply than functions may call each other."""
    value: Any = 2**63
    for _ in range(sys.getrecursionlimit()):
        value = {"a": [value]}
    with pytest.raises(msgspec.DecodeError, match="signed 64-bit"):
        _check_integers(value)


def test_a_missing_file_and_a_pipe_are_refused(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="No such file"):
        perfkit.load_report(tmp_path / "none.json")
    os.mkfifo(tmp_path / "pipe.json")
    with pytest.raises(StoreError, match="not a regular file"):
        perfkit.load_report(tmp_path / "pipe.json")


@pytest.mark.parametrize("name", ["summary", "rich", "markdown", "html"])
def test_in_a_report_from_elsewhere_no_string_is_more_than_text(name: str, tmp_path: Path) -> None:
    file = tmp_path / "report.json"
    file.write_bytes(msgspec.json.encode(_with_escapes(msgspec.to_builtins(make_scaling_report()))))
    shown = io.StringIO()
    reporter(Report, name).write(perfkit.load_report(file), shown, top=20)
    assert "x1b" in shown.getvalue()
    assert {c for c in shown.getvalue() if not c.isprintable()} <= {"\n", "\u2003"}


def _with_escapes(report: Any) -> Any:
    """Return a report whose strings end with a terminal's escape, where the schema allows any string."""
    for holders in _strings(report).values():
        kept = [holder[key] for holder, key in holders]
        for holder, key in holders:
            holder[key] += "\x1b[31m\u202e"
        try:
            msgspec.convert(report, Report)
        except msgspec.ValidationError:  # one of a few words
            for (holder, key), text in zip(holders, kept, strict=True):
                holder[key] = text
    return report


def _strings(node: Any) -> dict[object, list[tuple[Any, Any]]]:
    found: dict[object, list[tuple[Any, Any]]] = {}
    for holder in _holders(node):
        for key, value in holder.items() if isinstance(holder, dict) else enumerate(holder):
            if isinstance(value, str):
                found.setdefault(key if isinstance(key, str) else "", []).append((holder, key))
    return found


def _holders(node: Any) -> Iterator[Any]:
    if isinstance(node, dict | list):
        yield node
        for part in node.values() if isinstance(node, dict) else node:
            yield from _holders(part)
