"""An input source: one memory-mapped `.npy` file per field."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
from msgspec import Meta, Struct

from workloads.base import DataSpec, Workload
from workloads.data import DataOptions
from workloads.data.source import Source

if TYPE_CHECKING:
    from torch.utils.data import Dataset

    from workloads.data.source import Read, Sample


class NpyConfig(Struct, frozen=True, kw_only=True):
    """Options of the source; their names begin with its own."""

    npy_mmap: Annotated[bool, Meta(description="map the file instead of reading it whole")] = True


class Npy(Source[NpyConfig]):
    """One `.npy` file per field."""

    Config = NpyConfig
    package = "numpy"

    def prepare(self, workload: Workload[Any], spec: DataSpec, options: DataOptions) -> Path | None:
        """Write the files, unless they exist."""
        folder = Path(str(options.data_dir)) / f"npy-{spec.fingerprint[:16]}"
        folder.mkdir(parents=True, exist_ok=True)
        for name, values in workload.generate(spec, 0, spec.samples).items():
            if not (folder / f"{name}.npy").exists():
                np.save(folder / f"{name}.npy", values)
        return folder

    def dataset(
        self, workload: Workload[Any], spec: DataSpec, path: Path | None, options: DataOptions
    ) -> Dataset[Sample]:
        """Return the samples of the files."""
        from workloads.data.dataset import SampleDataset

        names = [field.name for field in spec.fields]
        return SampleDataset(spec.samples, partial(_open, path, names, "r" if self.config.npy_mmap else None))


def _open(folder: Path | None, names: list[str], mode: Any) -> Read:
    import torch

    assert folder is not None  # what `prepare` returned
    files = {name: np.load(folder / f"{name}.npy", mmap_mode=mode) for name in names}
    return lambda index: {name: torch.from_numpy(np.array(values[index])) for name, values in files.items()}
