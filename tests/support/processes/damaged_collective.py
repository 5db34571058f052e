"""Run perfkit on one rank, where an all-reduce of 1,024 elements returns one wrong element and reduce is unsupported.

Usage: python -m tests.support.processes.damaged_collective PERFKIT-ARGUMENTS
"""

import sys
from typing import Any

import torch.distributed as dist

from perfkit.cli import main

SIZE = 1024
_all_reduce = dist.all_reduce


class _Damaging:
    """A work that changes an element of its result once it is done."""

    def __init__(self, work: Any, tensor: Any) -> None:
        self._work, self._tensor = work, tensor

    def wait(self) -> None:
        self._work.wait()
        self._tensor[7] += 1


def damaged(tensor: Any, *args: Any, **options: Any) -> Any:
    work = _all_reduce(tensor, *args, **options)
    return _Damaging(work, tensor) if tensor.numel() == SIZE and dist.get_rank() == 1 else work


def unsupported(*args: Any, **options: Any) -> Any:
    raise RuntimeError("ProcessGroup does not support reduce\n  in some file")


if __name__ == "__main__":
    dist.all_reduce, dist.reduce = damaged, unsupported
    sys.exit(main(sys.argv[1:]))
