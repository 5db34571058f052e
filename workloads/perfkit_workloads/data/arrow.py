"""The source `arrow`: samples in an Arrow file as Hugging Face's `datasets` writes them; `arrow_file` does the work."""

from __future__ import annotations

from contextlib import AbstractContextManager
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

    package = "pyarrow"
    extra = "arrow"

    def file_name(self, spec: DataSpec) -> str:
        """Return workload and fingerprint."""
        return f"{spec.workload}-{spec.fingerprint[:12]}.arrow"

    def write(self, path: Path, workload: SampleGenerator, spec: DataSpec) -> None:
        """Write one column per field."""
        from perfkit_workloads.data.arrow_file import write_file

        write_file(path, workload, spec)

    def open(self, path: Path) -> AbstractContextManager[Stored]:
        """Open a file to check it."""
        from perfkit_workloads.data.arrow_file import open_file

        return open_file(path)

    def opener(self, options: DataOptions) -> Opener:
        """Return the function that opens the file for reads of samples or batches."""
        from perfkit_workloads.data.arrow_file import open_batched, open_per_sample

        return open_per_sample if options.read == "per-sample" else open_batched
