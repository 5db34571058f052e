"""The definition of a number or a finding, from the manual that the package contains."""

import re
from collections.abc import Iterator
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Final, NamedTuple

import perfkit
from perfkit.errors import UsageError
from perfkit.records.findings import FINDING_CODES

_MOST: Final = 6
"""Passages of an answer."""
_MARKED: Final = re.compile(r"\*\*[^*]+\*\*|`[^`]+`")


class _Passage(NamedTuple):
    section: str
    text: str


def definition_lines(name: str) -> list[str]:
    """Return what the manual says of a name: a metric, a field, a cause, or the code of a finding.

    Raises:
        UsageError: It has nothing.
    """
    lines = [f"{name}: {FINDING_CODES[name]} (a finding)"] if name in FINDING_CODES else []
    word = re.compile(rf"(?<!\w){re.escape(name)}s?(?!\w)", re.IGNORECASE)
    using = [passage for passage in _passages() if word.search(passage.text)]
    # Passages that define a name have it in bold or as code; others only use it.
    using.sort(key=lambda passage: not any(map(word.search, _MARKED.findall(passage.text))))
    lines += [f"[section {one.section}] {one.text}" for one in using[:_MOST]]
    if not lines:
        sections = "; ".join(dict.fromkeys(passage.section for passage in _passages()))
        raise UsageError(f"no definition of {name!r}; the sections of the definitions are: {sections}")
    return lines


@cache
def _passages() -> tuple[_Passage, ...]:
    return tuple(_split(_metrics()))


def _metrics() -> str:
    packaged = files(perfkit) / "docs" / "metrics.md"
    in_clone = Path(perfkit.__file__).parents[1] / "docs" / "metrics.md"
    return (packaged if packaged.is_file() else in_clone).read_text(encoding="utf-8")


def _split(text: str) -> Iterator[_Passage]:
    """Yield the paragraphs, items of lists and rows of tables."""
    section = ""
    text = re.sub(r"^#.*$", r"\n\g<0>\n", text, flags=re.MULTILINE)
    for block in re.split(r"\n(?=- |\d+\. |\|)|\n\s*\n", text):
        line = " ".join(block.split())
        if line.startswith("## "):
            section = line.removeprefix("## ")
        elif section and not line.startswith(("#", "|---")) and line:
            yield _Passage(section, line)
