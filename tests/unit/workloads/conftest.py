from collections.abc import Iterator
from typing import Any

import pytest
import torch

from workloads import load
from workloads.base import Workload


def make(name: str, **options: object) -> Workload[Any]:
    workload = load(name)
    return workload(workload.Config(**options))


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    """Small tensors gain nothing from threads, and lose much where other tests run beside."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture
def small() -> Workload[Any]:
    """A transformer with two fields of different shape and 300 samples."""
    return make("transformer", samples=300, d_model=16, heads=2, target_length=3)
