"""The file formats and finding codes as golden files: a renamed field or code shows as a diff there."""

import json
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from perfkit.records.findings import FINDING_CODES
from perfkit.records.monitor import COLUMNS, EarlierSteps, StepLogHeader
from perfkit.records.trace_header import PerfkitHeader
from perfkit.report.json_schema import RECORDS, schema

INTRODUCTION = """# Findings

A finding is something about the data that you must know before you trust the numbers: `findings` in the JSON of a
report, with a code, a severity, a message and, where they apply, a rank and a file. These are all codes; a plug-in's
codes begin with its package's name and a dot.
"""


@pytest.mark.parametrize("record", RECORDS)
def test_schema_is_as_recorded(record: str, golden: Callable[[str, str], None]) -> None:
    golden(json.dumps(schema(record), indent=2), f"schema/{record}.json")


@pytest.mark.parametrize(
    ("name", "record"),
    [
        ("trace-header", PerfkitHeader),
        ("earlier-steps", EarlierSteps),
        ("step-log-header", StepLogHeader),
    ],
)
def test_formats_that_only_perfkit_reads_are_as_recorded(
    name: str, record: type, golden: Callable[[str, str], None]
) -> None:
    golden(json.dumps(msgspec.json.schema(record), indent=2), f"schema/{name}.json")


def test_the_columns_of_step_logs_are_as_recorded(golden: Callable[[str, str], None]) -> None:
    golden("\n".join(f"{column.name} {column.dtype}" for column in COLUMNS), "schema/step_log_columns.txt")


def test_finding_codes_are_as_recorded(golden: Callable[[str, str], None]) -> None:
    golden("\n".join(sorted(FINDING_CODES)), "schema/finding_codes.txt")


def test_the_documentation_lists_every_finding(pytestconfig: pytest.Config) -> None:
    page = Path(__file__).parents[3] / "docs" / "findings.md"
    rows = "".join(f"| `{code}` | {meaning} |\n" for code, meaning in FINDING_CODES.items())
    text = f"{INTRODUCTION}\n| code | meaning |\n|---|---|\n{rows}"
    if pytestconfig.getoption("--update-golden"):
        page.write_text(text, encoding="utf-8")
    assert page.read_text(encoding="utf-8") == text
