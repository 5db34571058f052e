"""The pages of the documentation: what they link to exists, and their code is code."""

import tomllib
from pathlib import Path

import pytest

from perfkit.cli import COMMANDS
from tests.support.documentation import ROOT, anchors, blocks, links, matches, pages

README = (ROOT / "README.md").read_text(encoding="utf-8")
OTHERS = ["SECURITY.md", ".github/CONTRIBUTING.md", "CHANGELOG.md"]
BUILT = ("docs/reference/commands/", "docs/reference/json.md", "docs/reference/python.md")
"""Pages that exist in the site only."""


def test_the_readme_is_short() -> None:
    assert len(README.splitlines()) <= 150


def test_every_command_is_in_the_readme() -> None:
    assert [name for name in COMMANDS if f"perfkit {name}" not in README] == []


@pytest.mark.parametrize("page", [*pages(), *OTHERS])
def test_links_lead_to_what_exists(page: str) -> None:
    for link in links(page):
        name, _, anchor = link.partition("#")
        if "://" in link:
            continue
        target = ((ROOT / page).parent / name).resolve() if name else ROOT / page
        if str(target.relative_to(ROOT)).startswith(BUILT):
            continue
        assert target.exists(), link
        assert not anchor or anchor in anchors(target), link


def test_python_blocks_compile() -> None:
    assert blocks("python")
    for block in blocks("python"):
        compile(block.body, block.page, "exec")


def test_toml_blocks_are_toml() -> None:
    assert blocks("toml")
    for block in blocks("toml"):
        tomllib.loads(block.body)


def test_broken_links_and_headings_are_told(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# What `--detail why` records, and what it costs\n```text\n# no heading\n```\n")
    assert anchors(page) == {"what---detail-why-records-and-what-it-costs"}


def test_shown_output_is_compared_line_by_line() -> None:
    assert matches("a\n...\nc\n", "a  \nb\nb\nc\n")
    assert matches("a\nb\n", "a\nb\n")
    assert not matches("a\nb\n", "a\nc\n")
    assert not matches("a\n...\nc\n", "a\nb\n")
