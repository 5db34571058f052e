"""Hooks of mkdocs: pages from outside of docs/, and references that are generated as the site is built."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from docs.generator import commands, json_fields
from docs.generator.links import OUTSIDE, for_site

GENERATED: Final[dict[str, Callable[[], str]]] = {
    "<!-- commands -->": commands.reference,
    "<!-- json fields -->": json_fields.reference,
}
"""Markers in pages, and what the site has in their place."""


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the files that are not in docs/."""
    for path, uri in OUTSIDE.items():
        files.append(File.generated(config, uri, abs_src_path=str(Path(path).absolute())))
    return files


def on_page_markdown(markdown: str, page: Page, **_: Any) -> str:
    """Return a page's text with the site's links and the generated references."""
    text = for_site(markdown, page.file.src_uri)
    for marker, reference in GENERATED.items():
        if marker in text:
            text = text.replace(marker, reference())
    return text
