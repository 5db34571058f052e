"""Links between pages: as they are in the repository, and as they are in the site, where folders differ."""

import posixpath
import re
from typing import Final

OUTSIDE: Final = {
    "README.md": "index.md",
    "CHANGELOG.md": "project/changes.md",
    "SECURITY.md": "project/security.md",
    ".github/CONTRIBUTING.md": "project/contributing.md",
    "reports/example.ipynb": "reports/example.ipynb",
    "reports/sample.svg": "reports/sample.svg",
}
"""Files outside of docs/ that are part of the site, and where."""

_INSIDE: Final = {site: path for path, site in OUTSIDE.items()}
_LINK: Final = re.compile(r"(!?)\[([^\]]*)\]\(([^)#\s]+)(#[^)\s]*)?\)")


def for_site(text: str, uri: str) -> str:
    """Return a page's text with its links as the site needs them.

    Args:
        text: Markdown, with links relative to the page's place in the repository.
        uri: The page's place in the site.
    """
    page = _INSIDE.get(uri, f"docs/{uri}")
    fenced = re.split(r"(^```.*?^```$)", text, flags=re.DOTALL | re.MULTILINE)
    return "".join(
        part if part.startswith("```") else _LINK.sub(lambda match: _link(match, page, uri), part) for part in fenced
    )


def _link(match: re.Match[str], page: str, uri: str) -> str:
    image, text, target, anchor = match[1], match[2], match[3], match[4] or ""
    if "://" in target or target.startswith("mailto:"):
        return match[0]
    path = posixpath.normpath(posixpath.join(posixpath.dirname(page), target))
    inside = OUTSIDE.get(path) or (path.removeprefix("docs/") if path.startswith("docs/") else None)
    if inside is None:
        return text  # a file of the repository that the site does not contain
    return f"{image}[{text}]({posixpath.relpath(inside, posixpath.dirname(uri) or '.')}{anchor})"
