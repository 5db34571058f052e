"""What the options of the runs come to, asked of one process: only `perfkit run` knows, and it imports torch."""

import subprocess
import sys
from collections.abc import Sequence
from typing import Any, Final

import msgspec
from msgspec import Struct

from perfkit.errors import PerfkitError, UsageError

_CHILD: Final = "perfkit.cli.resolve_options"


class ResolveRequest(Struct, frozen=True, kw_only=True):
    """What the process is asked."""

    commands: list[list[str]]
    """For each combination of options what follows `perfkit run`."""
    ranks: int
    """The fewest that any of them runs on."""


class ResolveResponse(Struct, frozen=True, kw_only=True):
    """What it says: the effective configurations, or why there are none."""

    configs: list[dict[str, Any]] = []
    threads_by_ranks: bool = False
    """Whether a run on the CPU leaves its threads to perfkit, which shares the cores among the ranks."""
    error: str | None = None
    usage: bool = False
    """Whether the error is one of the options."""


def resolve_options(commands: Sequence[Sequence[str]], ranks: int) -> ResolveResponse:
    """Return the effective configuration of each command, every option by its name.

    Args:
        commands: What follows `perfkit run`.
        ranks: The fewest that any of them runs on.

    Raises:
        UsageError: An option that `perfkit run` does not have or refuses.
        PerfkitError: torch is missing, or the process failed.
    """
    question = ResolveRequest(commands=[list(command) for command in commands], ranks=ranks)
    done = subprocess.run(
        [sys.executable, "-m", _CHILD], input=msgspec.json.encode(question), capture_output=True, check=False
    )
    try:
        answer = msgspec.json.decode(done.stdout, type=ResolveResponse)
    except msgspec.DecodeError as error:
        said = done.stderr.decode(errors="replace").strip().splitlines()[-1:] or [f"exit code {done.returncode}"]
        raise PerfkitError(f"the options of the runs could not be checked: {said[0]}") from error
    if answer.error is not None:
        raise (UsageError if answer.usage else PerfkitError)(answer.error)
    return answer
