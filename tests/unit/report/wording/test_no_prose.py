"""Engine, subjects and records have no prose: `perfkit.report.wording` has it; tables and charts format values.

Messages of errors are made where the error is raised: they are of what was given, not of what was found.
"""

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import perfkit

SOURCES = Path(perfkit.__file__).parent
FORMATTING: Final = "perfkit.base.formatting"
FEWEST_WORDS: Final = 3


def prose(tree: ast.AST) -> Iterator[str]:
    """Yield the sentences that code fills with values, but those of errors, and its imports of what formats values."""
    for node in ast.iter_child_nodes(tree):
        if makes_error(node):
            continue
        if isinstance(node, ast.JoinedStr):
            text = " ".join(str(part.value) for part in node.values if isinstance(part, ast.Constant))
            if sum(word.strip("(),;:'").isalpha() for word in text.split()) >= FEWEST_WORDS:
                yield text
        if isinstance(node, ast.ImportFrom) and node.module == FORMATTING:
            yield from (name.name for name in node.names)
        yield from prose(node)


def makes_error(node: ast.AST) -> bool:
    """Return whether code raises or makes an error, or is the class of one."""
    if isinstance(node, ast.ClassDef):
        return node.name.endswith("Error")
    name = node.func.id if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) else ""
    return isinstance(node, ast.Raise) or name.endswith("Error")


def test_engine_subjects_and_records_make_no_sentences() -> None:
    found = {
        path.relative_to(SOURCES).as_posix()
        for room in ("engine", "subjects", "records")
        for path in (SOURCES / room).rglob("*.py")
        if path.name not in ("tables.py", "charts.py") and any(prose(ast.parse(path.read_text(encoding="utf-8"))))
    }
    assert not found
