from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
import torch

from perfkit_workloads import WORKLOADS
from perfkit_workloads.base import Workload
from perfkit_workloads.data import SOURCES, DataOptions
from perfkit_workloads.data.source import Source


def make(name: str, **options: object) -> Workload[Any]:
    workload = WORKLOADS.load(name)
    return workload(workload.Config(**options))


def make_source(**values: object) -> tuple[Source[Any], DataOptions]:
    """Return a source and the options of reading it; `values` may be of either."""
    source = SOURCES.load(str(values.get("source", "memory")))
    own = {name: values[name] for name in source.Config.__struct_fields__ if name in values}
    general = {name: value for name, value in values.items() if name not in own}
    return source(msgspec.convert(own, source.Config)), msgspec.convert(general, DataOptions)


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
