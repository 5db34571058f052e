"""Ask `perfkit mcp` about runs with known faults, as an agent would, and count how often the cause is in its answers.

Usage: python -m tests.benchmarks.bench_agents [--clusters 20] [--scripts 10] [--list]

Clusters are simulated, scripts really run. Each run is asked for `answer`, and for `ledger` if that is not enough; the
tokens of what is returned, at three characters each, are compared with those of the report as JSON.
"""

import argparse
import asyncio
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Final, NamedTuple

from mcp import Client, StdioServerParameters

import perfkit
from tests.support.clusters.cluster import simulate
from tests.support.clusters.device_faults import cases
from tests.support.processes.slow_lines import SLOW_LINES

_CHARACTERS: Final = 3
"""Of a token, in text full of figures."""


class Labelled(NamedTuple):
    """A run with a known fault."""

    folder: Path
    cause: str
    """A regular expression for it."""


class Asked(NamedTuple):
    """What the answers about a run were."""

    tools: int
    found: bool
    characters: int
    raw: int
    """Characters of the report as JSON."""
    text: str


def labelled_runs(root: Path, clusters: int, scripts: int) -> Iterator[Labelled]:
    """Yield the runs, each made when it is asked for."""
    for number, case in enumerate(islice((case for case in cases(10 * clusters) if case.said), clusters)):
        folder = root / f"cluster{number}"
        simulate(case.cluster, folder)
        yield Labelled(folder, str(case.said))
    for name, script in islice(SLOW_LINES.items(), scripts):
        path = root / f"slow_{name}.py"
        path.write_text(script.text, encoding="utf-8")
        command = [sys.executable, "-m", "perfkit", "run", str(path), "--no-report", "--name", name]
        subprocess.run(command, check=True, capture_output=True, cwd=root)
        yield Labelled(root / "traces" / name, re.escape(script.function.rpartition(".")[2]))


async def ask(client: Client, run: Labelled) -> Asked:
    """Ask what an agent would, until the cause is in an answer."""
    text, found, tools = "", False, 0
    for tool in ("answer", "ledger"):
        result = await client.call_tool(tool, {"run": str(run.folder)})
        text += "\n".join(getattr(part, "text", "") for part in result.content)
        tools += 1
        if found := re.search(run.cause, text) is not None:
            break
    raw = len(await asyncio.to_thread(_as_json, run.folder))
    return Asked(tools, found, len(text), raw, text)


def _as_json(folder: Path) -> str:
    command = [sys.executable, "-m", "perfkit", "analyze", str(folder), "--json"]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


async def measure(root: Path, runs: Iterator[Labelled], *, is_listing: bool) -> list[Asked]:
    """Return what was answered about each run."""
    server = StdioServerParameters(command=sys.executable, args=["-m", "perfkit", "mcp", str(root)])
    asked = []
    async with Client(server) as client:
        for run in runs:
            asked.append(await ask(client, run))
            if is_listing and not asked[-1].found:
                print(f"{run.folder.name}: {run.cause} is not in\n{asked[-1].text}\n")
    return asked


def main() -> None:
    """Make the runs, ask and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clusters", type=int, default=20)
    parser.add_argument("--scripts", type=int, default=10)
    parser.add_argument("--list", action="store_true", help="print what is answered where the cause is not in it")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        runs = labelled_runs(Path(folder), given.clusters, given.scripts)
        asked = asyncio.run(measure(Path(folder), runs, is_listing=given.list))
    found = [one for one in asked if one.found]
    first = [one for one in found if one.tools == 1]
    print(f"perfkit {perfkit.__version__}: {len(asked)} runs; the cause is in the answers of {len(found)}, ", end="")
    print(f"of {len(first)} in the first")
    print(f"tokens per answer: at most {max(one.characters // one.tools for one in asked) // _CHARACTERS:,}")
    print(f"of the report as JSON: {sum(one.characters for one in asked) / sum(one.raw for one in asked):.2%}")


if __name__ == "__main__":
    main()
