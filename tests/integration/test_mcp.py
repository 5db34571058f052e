"""`perfkit mcp`, asked by the protocol's own client over stdin and stdout."""

import asyncio
import sys
from pathlib import Path
from typing import Any

import pytest
from mcp import Client, StdioServerParameters

from tests.support.processes.launching import PYTHON, execute

TRACES = Path(__file__).parents[2] / "traces"
RUN = str(TRACES / "sample-hdf5")
HOSTILE: tuple[tuple[str, dict[str, Any]], ...] = (
    *(("answer", {"run": path}) for path in ("/etc/passwd", "/proc/self/environ", "../..", "\0", "x" * 100_000)),
    *(("answer", arguments) for arguments in ({}, {"run": 5}, {"run": None}, {"run": ["a"]})),
    *(("section", {"run": RUN, "name": name}) for name in ("nope", "../ranks", "__init__")),
    *(("whatif", {"run": RUN, "changes": changes}) for changes in (["rank9=healthy"], ["x" * 10_000], "input=0")),
    ("time_window", {"run": RUN, "rank": 10**30}),
    ("time_window", {"run": RUN, "step": "3; rm -rf /"}),
    ("time_window", {"run": RUN, "start_ms": 1e300, "end_ms": float("inf")}),
    ("define", {"name": "(" * 500}),
    ("compare", {"before": RUN, "after": "/etc"}),
)


async def conversation() -> tuple[list[str], list[str], str]:
    """Return the tools, what hostile requests are answered, and what a good one is answered after them."""
    server = StdioServerParameters(command=sys.executable, args=["-m", "perfkit", "mcp", str(TRACES)])
    async with Client(server, read_timeout_seconds=60) as client:
        tools = [tool.name for tool in (await client.list_tools()).tools]
        refused = []
        for name, arguments in HOSTILE:
            result = await client.call_tool(name, arguments)
            refused.append("".join(getattr(part, "text", "") for part in result.content))
        result = await client.call_tool("answer", {"run": RUN})
        return tools, refused, "".join(getattr(part, "text", "") for part in result.content)


@pytest.mark.slow
def test_agents_get_answers_and_hostile_requests_a_refusal() -> None:
    tools, refused, answer = asyncio.run(conversation())
    assert len(tools) == 8
    for (name, arguments), text in zip(HOSTILE, refused, strict=True):
        shown = f"{name} {str(arguments)[:80]}: {text[:300]}"
        assert text.startswith(("Cannot answer: ", "Error executing tool ")), shown
        assert "Traceback" not in text, shown
        assert len(text) < 10_000 or len(str(arguments)) > 5_000, shown
    assert "Headline: Host work takes 43 %" in answer


def test_the_skill_is_printed() -> None:
    done = execute([*PYTHON, "mcp", "--skill"])
    assert done.stdout.startswith("---\nname: perfkit\n")
