"""Names of Python functions, as in `src/train.py(12): main`: whose they are, and how a table shows them."""

import re
import sys
from collections.abc import Sequence
from typing import Final

PYTHON_FUNCTION: Final = re.compile(r"(?P<file>[^()<>]+)\((?P<line>\d{1,9})\): (?P<function>.+)")
"""File, line and name of a function."""
_LIBRARIES: Final = frozenset(
    {"PIL", "click", "h5py", "numpy", "pandas", "perfkit", "safetensors", "scipy", "torch", "torchvision", "tqdm"}
    | {"triton", "typer"}
).union(sys.stdlib_module_names)
"""Packages whose functions explain less than their callers. kineto writes paths relative to `sys.path`."""
_OF_THE_PROGRAM: Final = (
    *("perfkit/record/training/", "perfkit/record/injected_delay.py"),
    *("perfkit/capture/training/", "perfkit/capture/injected_delay.py"),  # traces from when the folder was called so
)
"""perfkit's own training loop is the program, where perfkit trains a workload, and so are delays put into it."""
_INSTALLED: Final = re.compile(r"(site|dist)-packages/|/lib/python3|/torchinductor_|\.triton/")
"""Paths of installed packages, and of what torch.compile has generated."""
_COMMAND: Final = re.compile(r"(^|/)bin/(perfkit|torchrun|accelerate)$")
"""Paths of installed commands that run the program."""


def is_own(name: str) -> bool:
    """Return whether a function, as in `train.py(12): main`, is the program's, not a library's."""
    path, parenthesis, _ = name.partition("(")
    if not parenthesis or name.startswith(("<", "nn.Module: ")) or _INSTALLED.search(path) or _COMMAND.search(path):
        return False
    return path.startswith(_OF_THE_PROGRAM) or path.partition("/")[0].removesuffix(".py") not in _LIBRARIES


def callers(stack: Sequence[str], most: int) -> list[str]:
    """Return where a stack, innermost function first, is in the program, as in `train.py:12`: its innermost places.

    Without functions of the program these are places in libraries, without any Python the names themselves.
    """
    python = [frame for frame in stack if ".py(" in frame]
    own = [frame for frame in python if is_own(frame)]
    return [_place(frame) for frame in (own or python or stack)[:most]]


def _place(frame: str) -> str:
    path, parenthesis, rest = frame.partition(".py(")
    return f"{path.rpartition('/')[2]}.py:{rest.partition(')')[0]}" if parenthesis else frame
