"""Entry point of `python -m perfkit` and of the console script."""

import os
import sys
from collections.abc import Sequence
from typing import NoReturn

from perfkit.base.process import exit_on_sigint, use_default_sigint
from perfkit.base.standard_streams import open_closed_streams

__all__ = ["main"]


def main(args: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code; Ctrl-C is one line even while modules are imported."""
    open_closed_streams()
    with exit_on_sigint():
        from perfkit.cli import main as run
    return run(args)


def start() -> NoReturn:
    """Run the command line as a separate process, which may be a rank."""
    if "PERFKIT_RENDEZVOUS" in os.environ:  # known_launchers.RENDEZVOUS_VARIABLE; that module is slower to import
        use_default_sigint()
    sys.exit(main())


if __name__ == "__main__":
    start()
