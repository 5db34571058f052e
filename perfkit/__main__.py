"""`python -m perfkit`, and the console script."""

import sys
from collections.abc import Sequence

__all__ = ["main"]


def main(args: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code; Ctrl-C is one line even while the command line is loaded."""
    try:
        from perfkit.cli import main as run

        return run(args)
    except KeyboardInterrupt:
        sys.stderr.write("perfkit: error: interrupted\n")
        return 130  # 128 + SIGINT, as a shell has it


if __name__ == "__main__":
    sys.exit(main())
