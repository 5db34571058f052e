"""Freed memory returns to the system, in perfkit's own processes."""

import ctypes
import subprocess
import sys

import pytest

FREED = """
import sys
import numpy as np
from perfkit.base.process import prepare_for_reading

def resident() -> int:
    return int(open("/proc/self/statm").read().split()[1]) * 4096

if sys.argv[1] == "returned":
    prepare_for_reading()
del (learned := [np.ones(2 << 20)])[0]  # 16 MiB: glibc keeps blocks up to this size from now on
blocks = [np.ones(1 << 20) for _ in range(8)]
before = resident()
del blocks[::2]
print((before - resident()) >> 20)
"""


def freed_mib(how: str) -> int:
    done = subprocess.run([sys.executable, "-c", FREED, how], stdout=subprocess.PIPE, text=True, check=True)
    return int(done.stdout)


@pytest.mark.skipif(
    sys.platform != "linux" or not hasattr(ctypes.CDLL(None), "mallopt"), reason="the C library is not glibc"
)
def test_blocks_between_others_are_returned() -> None:
    assert freed_mib("returned") >= 30  # four of 8 MiB
    assert freed_mib("kept") < 30
