"""Facts and their words: each fact that analysis or a rule returns has a row, with values for all that it names."""

import ast
from collections.abc import Iterator, Sequence
from pathlib import Path
from string import Formatter
from typing import NamedTuple

import pytest

import perfkit
from perfkit.records.facts import Words, fact, statement
from perfkit.records.scaling import Fit
from perfkit.report.wording import REMEDIES, SENTENCES, worded
from perfkit.report.wording.findings import SENTENCES as FINDINGS
from perfkit.report.wording.whatif import APPLIES_TO, ASSUMPTIONS, REFUSALS
from perfkit.tables.words import FORMATS, in_words

ROOT = Path(perfkit.__file__).parent
MAKERS = ("fact", "statement", "nothing_matches")
WHAT_IF = sorted((ROOT / "engine" / "whatif").rglob("*.py"))
FILES = sorted({*(path for room in ("engine", "subjects") for path in (ROOT / room).rglob("*.py"))} - {*WHAT_IF})
FILES.append(ROOT / "pipeline" / "words.py")
ROOMS = pytest.mark.parametrize(
    ("files", "tables"),
    [(FILES, (SENTENCES, REMEDIES)), (WHAT_IF, (APPLIES_TO, ASSUMPTIONS, REFUSALS))],
    ids=["analysis", "what-if"],
)


class Made(NamedTuple):
    """A call of `fact` or `statement` in the code."""

    where: str
    name: str
    given: frozenset[str] | None
    """Names of its values; None if some are not written out."""


def made(files: Sequence[Path]) -> Iterator[Made]:
    for path in files:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in MAKERS:
                given = (
                    None
                    if any(one.arg is None for one in node.keywords)
                    else frozenset(one.arg for one in node.keywords if one.arg)
                )
                for name in ast.walk(node.args[0]):
                    if isinstance(name, ast.Constant) and isinstance(name.value, str) and name.value.isidentifier():
                        yield Made(f"{path.name}:{node.lineno}", name.value, given)


def needed(template: str) -> frozenset[str]:
    return frozenset(field for _, field, *_ in Formatter().parse(template) if field)


def literals(files: Sequence[Path]) -> set[str]:
    nodes = (node for path in files for node in ast.walk(ast.parse(path.read_text())))
    return {node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)}


@ROOMS
def test_every_fact_has_words_for_what_it_tells(files: Sequence[Path], tables: Sequence[Words]) -> None:
    several = list(made(files))
    assert len(several) > 40
    for where, name, given in several:
        rows = [table[name] for table in tables if name in table]
        if not rows:  # a part of a name, such as of `check_compute`
            assert any(other.startswith(name) or other.endswith(name) for table in tables for other in table), where
        for row in rows:
            if isinstance(row, str) and given is not None and (len(rows) == 1 or given):
                assert needed(row) <= given, where


@ROOMS
def test_no_words_are_left_over(files: Sequence[Path], tables: Sequence[Words]) -> None:
    said = literals(files)
    parts = [text for text in said if text.strip("_").isidentifier()]
    for name in (name for table in tables for name in table):
        assert (
            name in said
            or any(name.startswith(one) and name[len(one) :] in said for one in parts)
            or any(name.endswith(one) and name[: -len(one)] in said for one in parts)
        ), name


@pytest.mark.parametrize(
    ("template", "value", "text"),
    [
        ("{x:duration}", 1.5e6, "1.50 ms"),
        ("{x:percent}", 0.123, "12 %"),
        ("{x:ranks}", [3, 1], "ranks 1 and 3"),
        ("{x} rank{x:||s}", 1, "1 rank"),
        ("{x} rank{x:||s}", 2, "2 ranks"),
        ("{x:|it has|they have}", (1, 2), "they have"),
        ("{x:|at least |}5", False, "5"),
        ("{x:.2f}", 0.5, "0.50"),
        ("in {x}", "a\x1b[2J", r"in a\x1b[2J"),
        ("in {x}", fact("name", x="f"), "in {f}"),
        ("in{x}", (), "in"),
        ("in {x}", statement("name", x="f"), "in {f}"),
        ("in {x[0]}", {0: fact("name", x="f")}, "in {f}"),
        ("in {x}", [fact("name", x="f"), (fact("name", x="g"),)], "in {f}, {g}"),
    ],
)
def test_how_values_are_written(template: str, value: object, text: str) -> None:
    assert in_words((fact("row", x=value),), {"row": template, "name": "{{{x}}}"}) == text


def test_the_statements_of_a_record_become_texts() -> None:
    fit = Fit(model="usl", parameters={}, residual=None, peak=None, reason=statement("no_time_for_work"))
    (found,) = worded([fit])
    assert (fit.reason, type(found.reason)) == ("no_time_for_work", str)
    assert found.reason == "the law does not fit these runs: it leaves no time for the work itself"
    assert worded(found) is found


def test_formats_are_documented_by_use() -> None:
    used = {
        spec
        for table in (SENTENCES, REMEDIES, FINDINGS)
        for row in table.values()
        if isinstance(row, str)
        for _, _, spec, _ in Formatter().parse(row)
        if spec
    }
    assert set(FORMATS) <= used
