"""A report that was written is read back, and anything else is one line."""

import os
from pathlib import Path

import msgspec
import pytest

import perfkit
from perfkit.errors import StoreError
from perfkit.schema.report import REPORT_VERSION
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


def test_a_missing_file_and_a_pipe_are_refused(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="No such file"):
        perfkit.load_report(tmp_path / "none.json")
    os.mkfifo(tmp_path / "pipe.json")
    with pytest.raises(StoreError, match="not a regular file"):
        perfkit.load_report(tmp_path / "pipe.json")
