"""The commit of the code that is run, so that runs can be set in the order of what changed."""

import re
import subprocess
from typing import Final

_PATIENCE_S: Final = 5
_NAME: Final = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}", re.ASCII)


def current_commit() -> str | None:
    """Return the commit that the repository of the working directory is at; None where there is none, or no git."""
    try:
        said = subprocess.run(
            ["git", "rev-parse", "--verify", "HEAD"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            timeout=_PATIENCE_S,
            check=False,
        ).stdout.strip()
    except (OSError, subprocess.TimeoutExpired, UnicodeDecodeError):
        return None
    return said if _NAME.fullmatch(said) else None
