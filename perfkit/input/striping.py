"""How Lustre has spread a file over its storage targets, as `lfs getstripe` reports it."""

import shutil
import subprocess
from pathlib import Path
from typing import Final, NamedTuple

_LIMIT_S: Final = 10


class Stripes(NamedTuple):
    """The layout of a file."""

    targets: int
    """Storage targets."""
    stripe_bytes: int
    """Consecutive bytes on one of them."""


def find_stripes(path: Path) -> Stripes | None:
    """Return the layout of a file; None if it is not on Lustre, or `lfs` is not on the PATH."""
    if shutil.which("lfs") is None:
        return None
    count, size = _ask("--stripe-count", path), _ask("--stripe-size", path)
    return None if count is None or size is None else Stripes(count, size)


def _ask(what: str, path: Path) -> int | None:
    command = ["lfs", "getstripe", what, str(path.absolute())]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_LIMIT_S, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    # A file of several components has a line each; the last number is that of its largest part.
    numbers = [word for word in done.stdout.split() if word.isdecimal()]
    return int(numbers[-1]) if done.returncode == 0 and numbers else None
