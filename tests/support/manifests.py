"""Manifests of runs of two ranks, for tests of what closes a run."""

from typing import Literal

from perfkit.records.manifest import RunManifest, World


def make_manifest(state: Literal["running", "completed"] = "running", launcher: str = "perfkit") -> RunManifest:
    """Return the manifest of a run on two gloo ranks of one host, without records of ranks."""
    return RunManifest(
        run="r",
        state=state,
        workload="w",
        source="custom",
        started_at="2026-01-01T00:00:00+00:00",
        config={},
        versions={},
        backend="gloo",
        device="cpu",
        world=World(world_size=2, nodes=1, launcher=launcher, local_world_sizes=[2]),
    )
