"""The file formats and finding codes as golden files: a renamed field or code shows as a diff there."""

import ast
import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import perfkit
from perfkit.report.json_schema import RECORDS, schema

SOURCES = Path(perfkit.__file__).parent


@pytest.mark.parametrize("record", RECORDS)
def test_schema_is_as_recorded(record: str, golden: Callable[[str, str], None]) -> None:
    golden(json.dumps(schema(record), indent=2), f"schema/{record}.json")


def test_finding_codes_are_as_recorded(golden: Callable[[str, str], None]) -> None:
    golden("\n".join(sorted(set(_finding_codes()))), "schema/finding_codes.txt")


def _finding_codes() -> Iterator[str]:
    """Yield the code of every `Finding(...)` in the sources, and of every table row that becomes one."""
    for path in SOURCES.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Finding":
                yield from (
                    str(keyword.value.value)
                    for keyword in node.keywords
                    if keyword.arg == "code" and isinstance(keyword.value, ast.Constant)
                )
            if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "(code, severity)":
                yield from (
                    str(pair.elts[0].value)
                    for pair in ast.walk(node.value)
                    if isinstance(pair, ast.Tuple) and isinstance(pair.elts[0], ast.Constant)
                )
