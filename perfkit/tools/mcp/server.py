"""The server: the public methods of `Answers` as tools, over stdin and stdout."""

import functools
import inspect
from collections.abc import Callable, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Any, Final, get_args

from perfkit._version import __version__
from perfkit.base.formatting import install_extra
from perfkit.errors import LaunchEnvironmentError, PerfkitError
from perfkit.tools.mcp.answers import Answers

_TOOLS: Final = ("list_runs", "answer", "ledger", "section", "compare", "whatif", "time_window", "define")
_FRONT_MATTER: Final = "---"


def serve(folders: Sequence[Path]) -> None:
    """Answer requests until stdin ends.

    Raises:
        LaunchEnvironmentError: The package `mcp` is not installed.
    """
    build_server(folders).run("stdio")


def build_server(folders: Sequence[Path]) -> Any:
    """Return the server, an `mcp.server.MCPServer`; raises as `serve`."""
    try:
        from mcp.server import MCPServer
        from mcp.types import ToolAnnotations
    except ImportError as error:
        raise LaunchEnvironmentError(f"perfkit mcp needs the package mcp ({error}): {install_extra('mcp')}") from error
    server = MCPServer("perfkit", instructions=_instructions(), version=__version__, log_level="WARNING")
    answers = Answers(folders)
    for name in _TOOLS:
        read_only = ToolAnnotations(read_only_hint=True)
        server.add_tool(_answering(getattr(answers, name)), name, annotations=read_only, structured_output=False)
    return server


def skill() -> str:
    """Return the skill: when to use which tool, in Markdown with the header that agents look for."""
    return (files("perfkit.tools.mcp") / "SKILL.md").read_text(encoding="utf-8")


def _instructions() -> str:
    return skill().split(_FRONT_MATTER, 2)[2].strip()


def _answering(tool: Callable[..., str]) -> Callable[..., str]:
    """Return a tool that answers with the reason where it cannot answer, and whose arguments have descriptions."""

    @functools.wraps(tool)
    def answer(*args: Any, **kwargs: Any) -> str:
        try:
            return tool(*args, **kwargs)
        except PerfkitError as error:
            return f"Cannot answer: {error}"

    parameters = [_described(one) for one in inspect.signature(tool).parameters.values()]
    # `inspect` prefers this to the signature of the wrapped method.
    vars(answer)["__signature__"] = inspect.Signature(parameters, return_annotation=str)
    return answer


def _described(parameter: inspect.Parameter) -> inspect.Parameter:
    """Return a parameter whose text, in its `Annotated`, is a description for pydantic."""
    from pydantic import Field

    of_type, *texts = get_args(parameter.annotation)
    return parameter.replace(annotation=Annotated[of_type, Field(description=" ".join(texts))])
