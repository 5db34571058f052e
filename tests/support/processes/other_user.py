"""Be another user for a while, where the tests run as root."""

import os
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

NOBODY = 65534

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")


@contextmanager
def as_nobody() -> Iterator[None]:
    """Let this process act as the user nobody, who cannot import what was not imported before."""
    groups = os.getgroups()
    os.setgroups([])
    os.setegid(NOBODY)
    os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(0)
        os.setegid(0)
        os.setgroups(groups)
