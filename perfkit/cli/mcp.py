"""`perfkit mcp`: answers agents' questions about runs."""

from pathlib import Path
from typing import Annotated

import typer

from perfkit.cli.typer_app import App, check_folders, print_line

app = App()


@app.command()
def mcp(
    paths: Annotated[list[Path] | None, typer.Argument(metavar="FOLDER", show_default=False)] = None,
    skill: Annotated[bool, typer.Option("--skill", help="Print a skill that says when to ask what, and exit.")] = False,
) -> None:
    """Answer an agent's questions about runs, over the Model Context Protocol on stdin and stdout.

    FOLDERs (by default traces) have runs or traces; nothing outside of them is opened.

    \b
    claude mcp add perfkit -- perfkit mcp /scratch/traces
    perfkit mcp --skill > ~/.claude/skills/perfkit/SKILL.md
    """  # noqa: D301  \b marks a paragraph that keeps its lines
    from perfkit.tools.mcp.server import serve
    from perfkit.tools.mcp.server import skill as skill_text

    if skill:
        print_line(skill_text().rstrip())
        return
    folders = paths or [Path("traces")]
    check_folders(folders)
    serve(folders)
