"""The git commit of the code that is run, so that runs can be ordered by commit."""

import re
import subprocess
from typing import Final

_TIMEOUT_S: Final = 5
_NAME: Final = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}", re.ASCII)


def current_commit() -> str | None:
    """Return the commit of the working directory's repository; None if there is no repository or no git."""
    try:
        output = subprocess.run(
            ["git", "rev-parse", "--verify", "HEAD"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            timeout=_TIMEOUT_S,
            check=False,
        ).stdout.strip()
    except (OSError, subprocess.TimeoutExpired, UnicodeDecodeError):
        return None
    return output if _NAME.fullmatch(output) else None
