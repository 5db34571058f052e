"""Names of C++ functions as compilers write them into object files."""

from typing import Final

MANGLED: Final = "_Z"
"""What they begin with."""
