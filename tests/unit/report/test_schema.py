"""The file formats and finding codes as golden files: a renamed field or code shows as a diff there."""

import json
from collections.abc import Callable

import pytest

from perfkit.report.json_schema import RECORDS, schema
from perfkit.schema.findings import FINDING_CODES


@pytest.mark.parametrize("record", RECORDS)
def test_schema_is_as_recorded(record: str, golden: Callable[[str, str], None]) -> None:
    golden(json.dumps(schema(record), indent=2), f"schema/{record}.json")


def test_finding_codes_are_as_recorded(golden: Callable[[str, str], None]) -> None:
    golden("\n".join(sorted(FINDING_CODES)), "schema/finding_codes.txt")
