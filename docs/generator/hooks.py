"""Hooks of mkdocs: pages from outside of docs/, and references that are generated as the site is built."""

import re
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
_FROM_ANOTHER_HOST: Final = "https://unpkg.com/iframe-worker/shim"
"""What the plug-in `offline` loads for the search; the site makes no request to other hosts."""
_WORKER: Final = Path(__file__).with_name("worker_from_disk.js")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the files that are not in docs/."""
    for path, uri in OUTSIDE.items():
        files.append(File.generated(config, uri, abs_src_path=str(Path(path).absolute())))
    files.append(File.generated(config, f"assets/{_WORKER.name}", abs_src_path=str(_WORKER)))
    return files


def on_post_page(output: str, page: Page, **_: Any) -> str:
    """Return a page that loads the search's worker from the site itself."""
    up = "../" * page.url.count("/")
    # Docstrings announce code by `::` on a separate line, which Markdown does not know.
    return output.replace(_FROM_ANOTHER_HOST, f"{up}assets/{_WORKER.name}").replace("<p>::</p>", "")


def on_post_template(output_content: str, **_: Any) -> str:
    """Return the page of a missing page without the script of another host: nobody opens it from the disk."""
    return re.sub(rf'<script src="{_FROM_ANOTHER_HOST}"></script>', "", output_content)


def on_page_markdown(markdown: str, page: Page, **_: Any) -> str:
    """Return a page's text with the site's links and the generated references."""
    text = for_site(markdown, page.file.src_uri)
    for marker, reference in GENERATED.items():
        if marker in text:
            text = text.replace(marker, reference())
    return text
