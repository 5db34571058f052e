"""What a rank trains: the checked options of `perfkit run WORKLOAD`. Does not import torch."""

from pathlib import Path
from typing import Any

from msgspec import Struct

from perfkit.errors import UsageError
from perfkit.options.run import RunConfig
from perfkit_workloads.base import Workload
from perfkit_workloads.data import DataOptions
from perfkit_workloads.data.source import Source


class Job(Struct, frozen=True, kw_only=True):
    """What to run, checked as far as possible without torch and the other ranks."""

    workload: Workload[Any]
    source: Source[Any]
    run: RunConfig
    data: DataOptions
    effective: dict[str, Any]
    """Every option by name, as the manifest records it."""

    def check_world(self, world_size: int) -> None:
        """Refuse options that do not fit the number of ranks."""
        self.run.check_world(world_size)
        replicas = self.run.layout(world_size).replicas
        spec = self.workload.data_spec(self.run.seed)
        problem = self.data.find_world_problem(world_size, replicas, spec.samples)
        if problem:
            raise UsageError(problem)

    @property
    def trace_dir(self) -> Path:
        return Path(self.run.trace_dir)
