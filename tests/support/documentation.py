"""The pages of the documentation: the README and docs/, their code blocks and their links."""

import re
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).parents[2]
_FIRST: Final = ("README.md", "docs/quickstart.md", "docs/lessons", "docs/record", "docs/collectives.md")
"""Whose commands are run first, because those of the other pages read what they record."""
_BLOCK: Final = re.compile(r"^```(\w+)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_LINK: Final = re.compile(r"\]\(([^)\s]+)\)")


class Block(NamedTuple):
    """A code block of a page."""

    page: str
    language: str
    body: str


def pages() -> list[str]:
    """Return the pages, relative to the root, in the order in which their commands are run."""
    found = ["README.md", *(str(path.relative_to(ROOT)) for path in sorted((ROOT / "docs").rglob("*.md")))]
    return sorted(found, key=lambda page: next((k for k, name in enumerate(_FIRST) if page.startswith(name)), 9))


def blocks(language: str) -> list[Block]:
    """Return the blocks in a language, of all pages."""
    return [
        Block(page, language, body)
        for page in pages()
        for name, body in _BLOCK.findall((ROOT / page).read_text(encoding="utf-8"))
        if name == language
    ]


def commands() -> list[str]:
    """Return the commands of the shell blocks, each once, without comments."""
    lines = [line.split("  #")[0].strip() for block in blocks("bash") for line in block.body.splitlines()]
    return list(dict.fromkeys(line for line in lines if line and not line.startswith("#")))


def links(page: str) -> list[str]:
    """Return the targets of a page's links, outside of code."""
    text = _BLOCK.sub("", (ROOT / page).read_text(encoding="utf-8"))
    return _LINK.findall(re.sub(r"`[^`]*`", "", text))


def anchors(path: Path) -> set[str]:
    """Return the anchors of a page's headings, as GitHub and the site make them."""
    headings = re.findall(r"^#+ +(.+)$", _BLOCK.sub("", path.read_text(encoding="utf-8")), re.MULTILINE)
    return {re.sub(r"\s", "-", re.sub(r"[^\w\s-]", "", heading.lower()).strip()) for heading in headings}


def matches(shown: str, printed: str) -> bool:
    """Return whether a page shows what was printed: to the letter but for trailing blanks; `...` is any lines."""
    pattern = "".join(
        r"(?:.*\n)*?" if line == "..." else re.escape(line.rstrip()) + "\n" for line in shown.splitlines()
    )
    return bool(re.fullmatch(pattern, "".join(f"{line.rstrip()}\n" for line in printed.splitlines())))
