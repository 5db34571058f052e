"""How many ranks of a run, or groups of ranks, train on their own samples: the rest of its mesh shares them."""

import math
import re
from typing import Final

from perfkit.schema.run import RunReport

_SHARE_SAMPLES: Final = ("pp", "cp", "tp")
"""Dimensions whose ranks share their samples (see `--batch-size`)."""
_PART: Final = re.compile(r"([a-z]+)=(\d{1,9})")


def replicas(run: RunReport) -> int:
    """Return the number; without a mesh, every rank is one."""
    sharing = math.prod(_sizes(run).get(name, 1) for name in _SHARE_SAMPLES)
    return run.world_size // sharing if sharing and run.world_size % sharing == 0 else run.world_size


def mesh_of_a_replica(run: RunReport) -> str:
    """Return the part of the mesh option that does not depend on the number of replicas, such as `pp=2,tp=2`."""
    named = ((name, size) for name, size in _sizes(run).items() if name not in ("dp", "replicate"))
    return ",".join(f"{name}={size}" for name, size in named if size > 1) or "none"


def _sizes(run: RunReport) -> dict[str, int]:
    """Return the sizes that the option gives; its text is that of an untrusted file."""
    mesh = (run.config or {}).get("mesh")
    parts = mesh.split(",")[:16] if isinstance(mesh, str) else []
    found = (_PART.fullmatch(part.strip()) for part in parts)
    return {match[1]: int(match[2]) for match in found if match}
