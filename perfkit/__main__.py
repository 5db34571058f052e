"""`python -m perfkit`, and the console script."""

import os
import sys
from collections.abc import Sequence

from perfkit.util.sigint import accept_as_rank, ending_at_once

__all__ = ["main"]


def main(args: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code; Ctrl-C is one line even while the command line is loaded."""
    with ending_at_once():
        from perfkit.cli import main as run
    return run(args)


if __name__ == "__main__":
    if "PERFKIT_RENDEZVOUS" in os.environ:  # launcher_env.RENDEZVOUS_VARIABLE, which is slower to import
        accept_as_rank()
    sys.exit(main())
