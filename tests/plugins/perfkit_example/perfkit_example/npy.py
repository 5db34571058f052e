"""An input source: one memory-mapped `.npy` file per field."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
from msgspec import Meta, Struct

from perfkit.base.atomic_write import atomic_write
from perfkit_workloads.base import DataSpec, SampleGenerator
from perfkit_workloads.data import DataOptions
from perfkit_workloads.data.source import Source

if TYPE_CHECKING:
    from torch.utils.data import Dataset

    from perfkit_workloads.data.source import Read, Sample


class NpyConfig(Struct, frozen=True, kw_only=True):
    """Options of the source; their names begin with its own."""

    npy_mmap: Annotated[bool, Meta(description="map the file instead of reading it whole")] = True


class Npy(Source[NpyConfig]):
    """One `.npy` file per field."""

    Config = NpyConfig
    package = "numpy"

    def prepare(self, workload: SampleGenerator, spec: DataSpec, options: DataOptions) -> Path:
        """Write the files, unless they exist; a file has its name only when it is complete."""
        folder = Path(options.data_dir or ".") / f"npy-{spec.fingerprint[:16]}"
        paths = [folder / f"{field.name}.npy" for field in spec.fields]
        if not all(path.exists() for path in paths):
            folder.mkdir(parents=True, exist_ok=True)
            samples = workload.generate(spec, 0, spec.samples)
            for path in paths:
                with atomic_write(path) as file:
                    np.save(file, samples[path.stem])
        return folder

    def dataset(
        self, workload: SampleGenerator, spec: DataSpec, path: Path | None, options: DataOptions
    ) -> Dataset[Sample]:
        """Return the samples of the files."""
        from perfkit_workloads.data.dataset import SampleDataset

        names = [field.name for field in spec.fields]
        return SampleDataset(
            spec.samples, partial(_open, Path(path or "."), names, "r" if self.config.npy_mmap else None)
        )


def _open(folder: Path, names: list[str], mode: Any) -> Read:
    import torch

    files = {name: np.load(folder / f"{name}.npy", mmap_mode=mode) for name in names}
    return lambda index: {name: torch.from_numpy(np.array(values[index])) for name, values in files.items()}
