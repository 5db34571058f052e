"""The source `arrow`: samples in an Arrow file as Hugging Face's `datasets` writes them; `arrow_file` does the work."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from perfkit_workloads.base import DataSpec, SampleGenerator
from perfkit_workloads.data import DataOptions
from perfkit_workloads.data.files import FileSource, Stored
from perfkit_workloads.data.source import NoOptions

if TYPE_CHECKING:
    from perfkit_workloads.data.files import Opener


class Arrow(FileSource[NoOptions]):
    """Files that `datasets.Dataset.from_file` and `pyarrow.ipc.open_stream` can open."""

    suffix = ".arrow"
    package = "pyarrow"
    extra = "arrow"

    def write(self, path: Path, workload: SampleGenerator, spec: DataSpec) -> None:
        from perfkit_workloads.data.arrow_file import write_file

        write_file(path, workload, spec)

    def inspect(self, path: Path) -> Stored:
        from perfkit_workloads.data.arrow_file import inspect_file

        return inspect_file(path)

    def opener(self, options: DataOptions) -> Opener:
        from perfkit_workloads.data.arrow_file import open_batched, open_per_sample

        return open_per_sample if options.read == "per-sample" else open_batched
