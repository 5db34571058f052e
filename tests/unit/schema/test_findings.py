"""The catalogue of finding codes against the sources: every code reported is described, and none is left over."""

import ast
from collections.abc import Iterator
from pathlib import Path

import perfkit
from perfkit.comparison import gates
from perfkit.pipeline import analyze
from perfkit.schema.findings import FINDING_CODES

SOURCES = Path(perfkit.__file__).parent
VARIABLE_CODES = {"perfkit/pipeline/summarize.py"}
"""Modules that pass a variable as the code: a copy of another finding's."""


def finding_codes(path: Path) -> Iterator[str | None]:
    """Yield the code of every `Finding(...)` in a module and of every table row that becomes one; None if variable."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Finding":
            (code,) = (keyword.value for keyword in node.keywords if keyword.arg == "code")
            yield str(code.value) if isinstance(code, ast.Constant) else None
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "(code, severity)":
            yield from (
                str(pair.elts[0].value)
                for pair in ast.walk(node.value)
                if isinstance(pair, ast.Tuple) and isinstance(pair.elts[0], ast.Constant)
            )


def test_the_catalogue_lists_exactly_the_codes_in_use() -> None:
    used = {path.relative_to(SOURCES.parent).as_posix(): set(finding_codes(path)) for path in SOURCES.rglob("*.py")}
    assert {path for path, codes in used.items() if None in codes} == VARIABLE_CODES
    assert set().union(*used.values()) - {None} == set(FINDING_CODES)


def test_codes_that_decide_something_are_in_the_catalogue() -> None:
    assert set(FINDING_CODES) >= gates._INCOMPLETE
    assert set(FINDING_CODES) >= {*analyze._UNREADABLE, *analyze._NOT_A_RUN}


def test_descriptions_are_one_sentence() -> None:
    for code, description in FINDING_CODES.items():
        assert code == code.lower()
        assert description[0].isupper() or description.startswith(("run.json", "sweep.json", "torch", "oneCCL")), code
        assert description.endswith("."), code
        assert "\n" not in description
