"""`python -m perfkit`, and the console script."""

import sys

from perfkit.cli import main

__all__ = ["main"]

if __name__ == "__main__":
    sys.exit(main())
