"""The messages of findings: one golden file for all of them, and a row for each fact that the sources report."""

import ast
from collections.abc import Callable, Iterator
from pathlib import Path
from string import Formatter

import perfkit
from perfkit.records.common import Observation
from perfkit.records.findings import FINDING_CODES
from perfkit.report.wording.findings import SENTENCES, word
from tests.support.reports.example_observations import EXAMPLES

SOURCES = Path(perfkit.__file__).parent
WITH_A_VARIABLE = {"perfkit/pipeline/summarize.py"}


def key(fact: Observation) -> str:
    return f"{fact.code}/{fact.case}" if fact.case else fact.code


def test_messages_are_as_recorded(golden: Callable[[str, str], None]) -> None:
    lines = [f"{key(fact)} {finding.severity}: {finding.message}" for fact in EXAMPLES for finding in (word(fact),)]
    golden("\n".join(lines), "wording/findings.txt")


def test_each_sentence_has_an_example_with_all_of_its_values() -> None:
    assert {key(fact) for fact in EXAMPLES} == set(SENTENCES)
    for fact in EXAMPLES:
        sentence = SENTENCES[key(fact)]
        if isinstance(sentence, str):  # a template ignores what it does not name
            named = {name for _, name, _, _ in Formatter().parse(sentence) if name}
            assert named == set(fact.values), key(fact)


def constants(node: ast.expr) -> Iterator[str | None]:
    """Yield the texts that an argument may be; None for others."""
    if isinstance(node, ast.IfExp):
        yield from (*constants(node.body), *constants(node.orelse))
    else:
        yield str(node.value) if isinstance(node, ast.Constant) else None


def reported(path: Path) -> Iterator[str | None]:
    """Yield the key of every `Observation(...)` in a module; None if the code is a variable."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Observation":
            cases = [*node.args[2:3], *(one.value for one in node.keywords if one.arg == "case")]
            for code in constants(node.args[0]):
                yield code and "/".join([code, *(str(next(constants(case))) for case in cases)])


def test_the_table_has_exactly_the_sentences_in_use() -> None:
    used = {path.relative_to(SOURCES.parent).as_posix(): set(reported(path)) for path in SOURCES.rglob("*.py")}
    assert {path for path, keys in used.items() if None in keys} == WITH_A_VARIABLE
    of_a_variable = {"not_a_trace", "unreadable_trace"}
    assert set().union(*used.values()) - {None} | of_a_variable == set(SENTENCES)
    assert {one.partition("/")[0] for one in SENTENCES} == set(FINDING_CODES)
