"""Start Python again without importing anything from the working directory, which may have come from somebody else."""

import sys


def child_python(module: str, function: str) -> list[str]:
    """Return the command that calls a function of a module of perfkit; arguments may be appended.

    `python -m` searches the working directory first, even for modules of the standard library. Here the child searches
    the places that this process does. The option `-P` would also change how the child runs a user's script.
    """
    first = sys.path[0] if sys.path else ""
    return [sys.executable, "-c", f"import sys; sys.path[0] = {first!r}; from {module} import {function}; {function}()"]
